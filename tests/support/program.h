// A program that ends with the test's process at the latest.
//
//   auto worker = Program::Start({.arguments = {path, "--port=0"}, .log = folder + "/worker.log"});
//   (*worker)->Signal(SIGSTOP);
//   (*worker)->AwaitEnd(std::chrono::seconds(5));
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::testing {

struct ProgramOptions {
  std::vector<std::string> arguments;  // the program's path first
  std::string log;                     // file for output and errors; empty: the caller's
  std::string network;                 // a network namespace; empty: the caller's
};

class Program {
 public:
  // The calling thread must outlive the program.
  static absl::StatusOr<std::unique_ptr<Program>> Start(const ProgramOptions& options);

  ~Program();  // SIGKILL if it still runs

  pid_t pid() const { return pid_; }
  bool Runs();
  void Signal(int signal) const;

  // DEADLINE_EXCEEDED if it still runs
  absl::StatusOr<std::string> AwaitEnd(std::chrono::milliseconds limit);

 private:
  explicit Program(pid_t pid) : pid_(pid) {}
  const pid_t pid_;
  bool ended_ = false;
  std::string how_;
};

}  // namespace hilbert_ring::testing

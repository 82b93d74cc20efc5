// A ring whose ranks are processes (ring_rank.cc), in a folder of their own.
//
//   RankProcesses ring("gloo", 4, "endless", milliseconds(2000));
//   ring.AwaitRunning(After(...));
//   ring.Kill(1);
//   ring.AwaitEnd(After(...));
//   ring.Outcome(0);               // "UNAVAILABLE: ..."
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"

namespace hilbert_ring::testing {

class RankProcesses {
 public:
  RankProcesses(const std::string& kind, int size, const std::string& scenario,
                std::chrono::milliseconds step_limit);
  ~RankProcesses();  // kills remaining ranks

  // Return false if the deadline passes first.
  bool AwaitRunning(Deadline deadline) const;  // until steps succeed on all ranks
  bool AwaitEnd(Deadline deadline);

  void Kill(int rank) const;  // SIGKILL

  // The rank's final status as text; empty if it wrote no status.
  std::string Outcome(int rank) const;

 private:
  std::filesystem::path folder_;
  std::vector<pid_t> pids_;  // by rank; -1 after its end
};

}  // namespace hilbert_ring::testing

// Errors, warnings and notes of the command line: a line each on stderr, as a JSON object if
// results are printed as JSON.
//
//   hilbert-ring: UNAVAILABLE: no worker is there (reason NO_WORKERS)
//   {"error":{"code":"UNAVAILABLE","reason":"NO_WORKERS","message":"no worker is there"}}
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cli/commands.h"
#include "client/cli/progress_line.h"
#include "client/cpp/call_timing.h"

namespace hilbert_ring::cli {

// Print an error and return the exit code. The line has the reason if it is not the code.
int BadInput(const GlobalOptions& global, const absl::Status& status);
int ServiceFailed(const GlobalOptions& global, const absl::Status& status);
// Adds a message to an error without one, such as gRPC's for a method that the server lacks.
absl::Status WithWords(const absl::Status& status);

// Reports why a call is made again; the same reason at most once in ten seconds.
class RetryTeller {
 public:
  explicit RetryTeller(const GlobalOptions& global) : global_(global) {}

  void Tell(const client::CallRetry& retry);

 private:
  const GlobalOptions& global_;
  absl::Status told_;
  absl::Time told_at_ = absl::InfinitePast();
};

// Prints properties of the spec that are rarely intended.
void PrintNotes(const GlobalOptions& global, const std::vector<std::string>& notes);

void PrintProgress(const GlobalOptions& global, const ProgressLine& line, absl::Time now);

void PrintWarning(const GlobalOptions& global, const std::string& warning);

}  // namespace hilbert_ring::cli

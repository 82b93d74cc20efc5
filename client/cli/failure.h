// How the command line says that something went wrong, or may be wrong: a line on stderr, which is
// a JSON object where results are printed as JSON.
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

// An error; the reason is left out where it says no more than the code. Return the exit code.
int BadInput(const GlobalOptions& global, const absl::Status& status);
int ServiceFailed(const GlobalOptions& global, const absl::Status& status);
int NotPrinted(const GlobalOptions& global, const absl::Status& status);  // what was done

// An error that came without words, with some. gRPC's own answer for a method that the server does
// not have is one.
absl::Status WithWords(const absl::Status& status);

// Says why a call is made again; the same reason once in ten seconds.
class RetryTeller {
 public:
  explicit RetryTeller(const GlobalOptions& global) : global_(global) {}

  void Tell(const client::CallRetry& retry);

 private:
  const GlobalOptions& global_;
  absl::Status told_;  // the last reason
  absl::Time told_at_ = absl::InfinitePast();
};

// What the job says and its writer seldom means.
void PrintNotes(const GlobalOptions& global, const std::vector<std::string>& notes);

// How far a job is.
void PrintProgress(const GlobalOptions& global, const ProgressLine& line, absl::Time now);

// What may be wrong with a result that was written.
void PrintWarning(const GlobalOptions& global, const std::string& warning);

}  // namespace hilbert_ring::cli

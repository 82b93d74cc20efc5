// How the command line says that something went wrong.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cli/commands.h"

namespace hilbert_ring::cli {

// "hilbert-ring: CODE: message" on stderr, and the reason where it says more than the code. Return
// the exit code.
int BadInput(const absl::Status& status);
int ServiceFailed(const GlobalOptions& global, const absl::Status& status);

// A line on stderr: why a job is tried again. attempt: from 1.
void PrintRetry(const absl::Status& last_failure, int attempt, absl::Duration wait);

}  // namespace hilbert_ring::cli

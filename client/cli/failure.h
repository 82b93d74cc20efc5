// How the command line says that something went wrong.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cli/commands.h"
#include "client/cpp/attend.h"

namespace hilbert_ring::cli {

// "hilbert-ring: CODE: message" on stderr, and the reason where it says more than the code. Return
// the exit code.
int BadInput(const absl::Status& status);
int ServiceFailed(const GlobalOptions& global, const absl::Status& status);

// A line on stderr: why a job is tried again. attempt: from 1.
void PrintRetry(const client::AttendProgress& progress, int attempt);

}  // namespace hilbert_ring::cli

// Child processes that end with their parent, however it ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

// Starts a program with this process's environment and `variables` ("NAME=value"), without other
// HILBERT_RING_*, because settings are arguments. The system kills the child when the calling
// *thread* ends. UNAVAILABLE if the system refuses; a program that cannot be executed ends with
// 127.
absl::StatusOr<pid_t> StartChild(const std::string& program,
                                 const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& variables = {});

// Returns false for an ended child, which it reaps; sets `description` then ("exit status 1",
// "signal 9").
bool ChildRuns(pid_t pid, std::string& description);

std::string ExecutableFolder();

}  // namespace hilbert_ring::server

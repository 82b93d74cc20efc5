// Child processes that end with their parent, however it ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

// Starts a program with this process's environment, without HILBERT_RING_* because settings are
// arguments. `variables` ("NAME=value") replace those of the same name. The system kills the child
// when the calling *thread* ends: call this from a thread that lives as long as the children
// should. UNAVAILABLE if the system refuses; a program that cannot be executed ends with 127.
absl::StatusOr<pid_t> StartChild(const std::string& program,
                                 const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& variables = {});

// False for an ended child, which it reaps; sets `description` then ("exit status 1", "signal 9").
bool ChildRuns(pid_t pid, std::string& description);

std::string ExecutableFolder();

}  // namespace hilbert_ring::server

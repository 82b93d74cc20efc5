// A child process that ends when its parent does, however the parent ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

// Starts a program. Its environment is this process's without HILBERT_RING_*, since what it needs
// are arguments, and with `variables` ("NAME=value"), which take the place of those of the same
// name. The system kills the child when the calling *thread* ends, so call this from a thread that
// lives as long as the children should. UNAVAILABLE when the system refuses; a program that cannot
// be executed ends with 127.
absl::StatusOr<pid_t> StartChild(const std::string& program,
                                 const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& variables = {});

// Whether a child of this process is still there; takes its status when it has ended, and says how
// it ended in `description` ("exit status 1", "signal 9").
bool ChildRuns(pid_t pid, std::string& description);

// Folder of this process's own executable.
std::string ExecutableFolder();

}  // namespace hilbert_ring::server

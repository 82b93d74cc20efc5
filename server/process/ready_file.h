// The file that says where a process listens, once it is ready.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hilbert_ring::server {

// Writes {"name": port, ..., "pid": ..., "workers": [...]} as a whole: a reader sees all of it or
// no file. UNAVAILABLE, naming the path, when it cannot be written.
absl::Status WriteReadyFile(const std::string& path, const std::map<std::string, int>& ports,
                            const std::vector<std::string>& workers);

// A file of an earlier process must not be taken for this one's. An empty path is no file.
void RemoveReadyFile(const std::string& path);

}  // namespace hilbert_ring::server

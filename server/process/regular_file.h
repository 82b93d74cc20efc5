// Reads a small file whole: tokens, a configuration. Refuses pipes, which block, and devices, which
// may have no end. Accepts links to files and memfds (/proc/PID/fd/N).
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

// Messages do not name the file ("must be a regular file, is a FIFO"). INVALID_ARGUMENT if it is
// not regular or has more than `most_bytes`; else the code follows errno.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t most_bytes);

}  // namespace hilbert_ring::server

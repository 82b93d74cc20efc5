// A small file that is read as a whole: tokens, a configuration.
//
//   const auto text = ReadRegularFile("/run/secrets/tokens", 4 << 20);
//
// In its place a pipe would be waited for, and a device may have no end: both are refused. A link
// to a file, and memory by its descriptor (/proc/PID/fd/N of a memfd), are as good as a file.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

// Messages say what is wrong with the file ("must be a regular file, is a FIFO"), and the caller
// names it. INVALID_ARGUMENT where it is none, or has more than so many bytes; else the code
// follows errno.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t most_bytes);

}  // namespace hilbert_ring::server

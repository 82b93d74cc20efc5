#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/descriptor.h"

namespace hilbert_ring::client {

// Writes all bytes. The code follows errno; the message begins with `name`.
inline absl::Status WriteAll(const Descriptor& file, std::span<const std::byte> bytes,
                             const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = write(file.number(), bytes.data(), bytes.size());
    if (written >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      return absl::ErrnoToStatus(errno,
                                 absl::StrCat(name, ": cannot write ", bytes.size(), " bytes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::client

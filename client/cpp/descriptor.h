// Owns a file descriptor.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::client {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }

  int number() const { return number_; }

 private:
  int number_ = -1;  // -1: empty
};

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

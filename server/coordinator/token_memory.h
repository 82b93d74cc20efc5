// A token in a memory file, which child processes read and which ends with this process.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

class TokenMemory {
 public:
  static absl::StatusOr<TokenMemory> Make(const std::string& token);
  TokenMemory(TokenMemory&& other) noexcept : descriptor_(other.descriptor_) {
    other.descriptor_ = -1;
  }
  TokenMemory& operator=(TokenMemory&&) = delete;
  ~TokenMemory();

  // Readable by this user's processes.
  std::string path() const;

 private:
  explicit TokenMemory(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;  // -1 when moved from
};

}  // namespace hilbert_ring::server

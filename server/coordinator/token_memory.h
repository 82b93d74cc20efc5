// A token as a file that lies in memory and is gone with this process: for processes that it
// starts.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::server {

class TokenMemory {
 public:
  // UNAVAILABLE when the system gives no memory.
  static absl::StatusOr<TokenMemory> Make(const std::string& token);
  TokenMemory(TokenMemory&& other) noexcept : descriptor_(other.descriptor_) {
    other.descriptor_ = -1;
  }
  TokenMemory& operator=(TokenMemory&&) = delete;
  ~TokenMemory();

  // Processes of this user read it there, as they read the environment of others of his.
  std::string path() const;

 private:
  explicit TokenMemory(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;  // -1 when moved from
};

}  // namespace hilbert_ring::server

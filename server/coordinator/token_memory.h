// A token in a memory file, which child processes read and which ends with this process.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/files/descriptor.h"

namespace hilbert_ring::server {

class TokenMemory {
 public:
  static absl::StatusOr<TokenMemory> Make(const std::string& token);

  // Readable by this user's processes.
  std::string path() const;

 private:
  explicit TokenMemory(Descriptor memory) : memory_(std::move(memory)) {}
  Descriptor memory_;
};

}  // namespace hilbert_ring::server

// Memory that a rank of a transport sends from and receives into.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::testing {

using Bytes = std::vector<unsigned char>;

class RankMemory {
 public:
  virtual ~RankMemory() = default;
  virtual void* data() = 0;
  virtual absl::Status Write(const Bytes& bytes) = 0;  // as many as allocated
  virtual absl::StatusOr<Bytes> Read() = 0;
};

std::unique_ptr<RankMemory> MakeHostMemory(int64_t bytes);

// Memory of the first GPU.
absl::StatusOr<std::unique_ptr<RankMemory>> MakeCudaMemory(int64_t bytes);

}  // namespace hilbert_ring::testing

#include "tests/conformance/rank_memory.h"

namespace hilbert_ring::testing {

absl::StatusOr<std::unique_ptr<RankMemory>> MakeCudaMemory(int64_t bytes) {
  return absl::FailedPreconditionError("no CUDA device: this build has no CUDA");
}

}  // namespace hilbert_ring::testing

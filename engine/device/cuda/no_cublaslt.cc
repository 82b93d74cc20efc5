// Builds without cuBLASLt's header have no products on a GPU.
#include "engine/device/cuda/products.h"

namespace hilbert_ring::cuda {

absl::StatusOr<std::unique_ptr<Products>> MakeProducts() {
  return absl::FailedPreconditionError(
      "products need cuBLASLt: this build lacks it (cublasLt.h was not found)");
}

}  // namespace hilbert_ring::cuda

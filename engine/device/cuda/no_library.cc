// Builds without cudnn-frontend's headers have native kernels alone.
#include "engine/device/cuda/library_attention.h"

namespace hilbert_ring::cuda {

absl::StatusOr<std::unique_ptr<LibraryAttention>> MakeLibraryAttention(AttentionKernel wanted,
                                                                       int compute_capability) {
  if (wanted == AttentionKernel::kCudnn) {
    return absl::FailedPreconditionError(
        "attention kernel cudnn: this build has no cuDNN attention (cudnn-frontend's headers were "
        "not found)");
  }
  return nullptr;
}

}  // namespace hilbert_ring::cuda

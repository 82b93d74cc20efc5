// Devices by the names that tests and benchmarks give them.
#pragma once

#include <string>

#include "absl/strings/match.h"
#include "engine/device/device.h"

namespace hilbert_ring {

// Of a kernel as DeviceInfo names it, "cpu/avx2", "cuda/native" or "cuda/cudnn"; also "cpu", "cuda"
// and "" for the best of either.
inline DeviceOptions OptionsFor(const std::string& kernel, int threads) {
  const size_t slash = kernel.find('/');
  const std::string name = slash == std::string::npos ? "" : kernel.substr(slash + 1);
  if (!absl::StartsWith(kernel, "cuda")) {
    return {.kind = DeviceKind::kCpu, .threads = threads, .instructions = name};
  }
  return {.kind = DeviceKind::kCuda,
          .memory_fraction = 0.5,
          .attention_kernel = name == "cudnn"    ? AttentionKernel::kCudnn
                              : name == "native" ? AttentionKernel::kNative
                                                 : AttentionKernel::kAuto};
}

}  // namespace hilbert_ring

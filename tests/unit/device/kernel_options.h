// Devices by the names that tests and benchmarks give them.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/device/device.h"

namespace hilbert_ring {

// Options of a kernel by its name in DeviceInfo: "cpu/avx2", "cuda/native", "cuda/native-sm90",
// "cuda/native-sm90-pipelined" or "cuda/cudnn". "cpu", "cuda" and "" name the best of either.
inline DeviceOptions OptionsFor(const std::string& kernel, int threads) {
  const size_t slash = kernel.find('/');
  const std::string name = slash == std::string::npos ? "" : kernel.substr(slash + 1);
  if (!absl::StartsWith(kernel, "cuda")) {
    return {.kind = DeviceKind::kCpu, .threads = threads, .instructions = name};
  }
  return {.kind = DeviceKind::kCuda,
          .memory_fraction = 0.5,
          .attention_kernel = name == "cudnn"                    ? AttentionKernel::kCudnn
                              : absl::StartsWith(name, "native") ? AttentionKernel::kNative
                                                                 : AttentionKernel::kAuto,
          .warpgroup_products = name != "native",
          .producer = name != "native-sm90"};
}

// Kernels of GPU 0 that this machine and build have; empty without a GPU.
inline std::vector<std::string> CudaKernels() {
  std::vector<std::string> kernels;
  for (const char* kernel :
       {"cuda/native", "cuda/native-sm90", "cuda/native-sm90-pipelined", "cuda/cudnn"}) {
    const auto device = MakeDevice(OptionsFor(kernel, 0));
    if (device.ok() && (*device)->info().kernel == kernel) kernels.push_back(kernel);
  }
  return kernels;
}

}  // namespace hilbert_ring

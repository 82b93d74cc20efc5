// The devices of encoder tests: this machine's CPU, or the GPU of HILBERT_RING_TEST_KERNEL ("cuda",
// "cuda/native").
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/strings/match.h"
#include "tests/unit/device/kernel_options.h"

namespace hilbert_ring::testing {

inline std::string EncoderKernel() {
  const char* kernel = std::getenv("HILBERT_RING_TEST_KERNEL");
  return kernel != nullptr && absl::StartsWith(kernel, "cuda") ? kernel : "cpu";
}

// A GPU's device by number, made once. Never destroyed: CUDA's runtime may end before the process.
inline Device& KeptGpu(int number) {
  static std::mutex mutex;
  static auto* const devices = new std::map<int, std::unique_ptr<Device>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Device>& device = (*devices)[number];
  if (device == nullptr) device = MakeDevice(OptionsFor(EncoderKernel(), 0)).value();
  return *device;
}

// The device of the weights; null: host memory.
inline Device* ModelDevice() { return EncoderKernel() == "cpu" ? nullptr : &KeptGpu(0); }

}  // namespace hilbert_ring::testing

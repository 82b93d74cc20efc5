// Devices that encoders are tested on: this machine's CPU, or the GPU that HILBERT_RING_TEST_KERNEL
// names ("cuda", "cuda/native").
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

// One of a GPU's devices, which take long to make: the same for the same number. Never destroyed,
// for by the end of the process CUDA's runtime may be gone.
inline Device& KeptGpu(int number) {
  static std::mutex mutex;
  static auto* const devices = new std::map<int, std::unique_ptr<Device>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Device>& device = (*devices)[number];
  if (device == nullptr) device = MakeDevice(OptionsFor(EncoderKernel(), 0)).value();
  return *device;
}

// Where weights lie: null for the host's memory.
inline Device* ModelDevice() { return EncoderKernel() == "cpu" ? nullptr : &KeptGpu(0); }

}  // namespace hilbert_ring::testing

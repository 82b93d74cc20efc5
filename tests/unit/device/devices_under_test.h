// Runs tests once for every device and kernel of this machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "engine/device/device.h"
#include "gtest/gtest.h"
#include "tests/support/test_depth.h"
#include "tests/unit/device/kernel_options.h"
#include "tests/unit/device/mirrored_device.h"

namespace hilbert_ring {

// Names of kernels as in DeviceInfo.kernel: "cpu/avx2", "cuda/native", "cuda/cudnn". Each test
// program links one definition: this machine's devices, or the emulated GPU.
std::vector<std::string> DevicesUnderTest();
extern const bool kEmulated;

// A test's share of `count`: all at full depth, a third otherwise, a sixth under emulation.
inline int Rounds(int count) {
  if (DepthOfTests() == TestDepth::kAll) return count;
  return (count + 2) / (kEmulated ? 6 : 3);
}

// A device that takes tasks over host memory, whatever its own memory is.
inline std::unique_ptr<Device> DeviceFor(const std::string& kernel, int threads) {
  return Mirrored(MakeDevice(OptionsFor(kernel, threads)).value());
}

inline std::string DeviceTestName(const testing::TestParamInfo<std::string>& info) {
  return absl::StrReplaceAll(info.param, {{"-", "_"}, {"/", "_"}});
}

#define HILBERT_RING_FOR_ALL_DEVICES(suite)                                                       \
  INSTANTIATE_TEST_SUITE_P(Kernels, suite, testing::ValuesIn(::hilbert_ring::DevicesUnderTest()), \
                           ::hilbert_ring::DeviceTestName)

}  // namespace hilbert_ring

// Runs tests once for every instruction set that this machine has kernels for.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/device/device.h"
#include "gtest/gtest.h"

namespace hilbert_ring {

inline std::unique_ptr<Device> DeviceFor(const std::string& instructions, int threads) {
  return MakeDevice({.kind = DeviceKind::kCpu, .threads = threads, .instructions = instructions})
      .value();
}

inline std::string InstructionsTestName(const testing::TestParamInfo<std::string>& info) {
  return absl::StrReplaceAll(info.param, {{"-", "_"}});
}

#define HILBERT_RING_FOR_ALL_INSTRUCTIONS(suite)                                         \
  INSTANTIATE_TEST_SUITE_P(Cpu, suite,                                                   \
                           testing::ValuesIn(::hilbert_ring::RunnableCpuInstructions()), \
                           ::hilbert_ring::InstructionsTestName)

}  // namespace hilbert_ring

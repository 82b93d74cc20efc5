// Runs tests once for every instruction set that this machine has kernels for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/device/device.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"

namespace hilbert_ring {

inline std::unique_ptr<Device> DeviceForTarget(int64_t target, int threads) {
  hwy::SetSupportedTargetsForTest(target);
  auto device = MakeDevice({.kind = DeviceKind::kCpu, .threads = threads});
  hwy::SetSupportedTargetsForTest(0);
  return std::move(device).value();
}

inline std::string TargetTestName(const testing::TestParamInfo<int64_t>& info) {
  return hwy::TargetName(info.param);
}

#define HILBERT_RING_FOR_EVERY_TARGET(suite)                                                      \
  INSTANTIATE_TEST_SUITE_P(Target, suite, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), \
                           TargetTestName)

}  // namespace hilbert_ring

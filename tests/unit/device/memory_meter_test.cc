#include "engine/device/memory_meter.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

TEST(MemoryMeter, RefusesWhatIsOverTheLimit) {
  MemoryMeter meter(100);
  ASSERT_TRUE(meter.Take(60).ok());
  const absl::Status status = meter.Take(41);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::HasSubstr("41 bytes"), testing::HasSubstr("60 of 100")));
  EXPECT_EQ(meter.used(), 60);
  EXPECT_EQ(meter.peak(), 60);
  EXPECT_FALSE(meter.Take(int64_t{1} << 62).ok());
}

}  // namespace
}  // namespace hilbert_ring

#include "server/process/memory_bounds.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "server/process/settings.h"

namespace hilbert_ring::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

int64_t SumOf(const std::vector<MemoryBound>& bounds) {
  int64_t sum = 0;
  for (const MemoryBound& bound : bounds) sum += bound.bytes / 8 * bound.eighths;
  return sum;
}

std::vector<MemoryBound> Bounds() {
  return {{.flag = "--stream", .bytes = 4 * kGiB},
          {.flag = "--transport", .bytes = 2 * kGiB, .eighths = 16}};
}

std::vector<int64_t> BytesOf(const std::vector<MemoryBound>& bounds) {
  std::vector<int64_t> bytes;
  bytes.reserve(bounds.size());
  for (const MemoryBound& bound : bounds) bytes.push_back(bound.bytes);
  return bytes;
}

TEST(MemoryBounds, DefaultsAreLoweredByOneFactor) {
  struct Case {
    int64_t usable, stream, transport;
  };
  for (const Case& row :
       {Case{64 * kGiB, 4 * kGiB, 2 * kGiB}, Case{8 * kGiB + kProcessBytes, 4 * kGiB, 2 * kGiB},
        Case{4 * kGiB + kProcessBytes, 2 * kGiB, kGiB},
        Case{128 * kMiB + kProcessBytes, 64 * kMiB, 32 * kMiB}}) {
    std::vector<MemoryBound> bounds = Bounds();
    ASSERT_TRUE(FitMemoryBounds(row.usable, bounds).ok()) << row.usable;
    EXPECT_THAT(BytesOf(bounds), ElementsAre(row.stream, row.transport));
    EXPECT_LE(SumOf(bounds) + kProcessBytes, row.usable);
  }
}

TEST(MemoryBounds, GivenBoundsStayAndTheOthersTakeTheRest) {
  std::vector<MemoryBound> bounds = Bounds();
  bounds[0] = {.flag = "--stream", .bytes = kGiB, .given = true};
  ASSERT_TRUE(FitMemoryBounds(2 * kGiB + kProcessBytes, bounds).ok());
  EXPECT_THAT(BytesOf(bounds), ElementsAre(kGiB, kGiB / 2));
}

TEST(MemoryBounds, GivenBoundsWithoutRoomAreRefused) {
  struct Case {
    int64_t usable;
    std::vector<int64_t> given;
    std::string message;
  };
  const int64_t least_of_others = 2 * 2 * kGiB / kLeastPart;
  const std::string of_8 = " of the 8589934592 that this process may use";
  for (const Case& row : {
           Case{8 * kGiB,
                {9 * kGiB, -1},
                "memory of --stream is 9663676416 bytes, must be at "
                "most " +
                    std::to_string(8 * kGiB - kProcessBytes - least_of_others) + of_8},
           Case{8 * kGiB,
                {4 * kGiB, 3 * kGiB},
                "memory of --stream and --transport is 10737418240 bytes, must be at most "},
           Case{8 * kGiB,
                {int64_t{1} << 62, int64_t{1} << 62},
                "memory of --stream and --transport is 9223372036854775807 bytes"},
           Case{128 * kMiB,
                {-1, -1},
                "memory of this process is limited to 134217728 bytes, must be at least 268435456"},
       }) {
    std::vector<MemoryBound> bounds = Bounds();
    for (size_t i = 0; i < bounds.size(); ++i) {
      if (row.given[i] < 0) continue;
      bounds[i].bytes = row.given[i];
      bounds[i].given = true;
    }
    const absl::Status status = FitMemoryBounds(row.usable, bounds);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.message));
  }
}

}  // namespace
}  // namespace hilbert_ring::server

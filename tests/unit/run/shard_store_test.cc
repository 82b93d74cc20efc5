#include "engine/run/shard_store.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "tests/unit/device/forwarding_device.h"

namespace hilbert_ring {
namespace {

// A device whose addresses are not host addresses: only its own calls reach the bytes.
class FarDevice : public ForwardingDevice {
 public:
  explicit FarDevice(int64_t limit) : ForwardingDevice(*MakeDevice({.threads = 1})), left_(limit) {}

  bool host_memory() const override { return false; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    if (bytes > left_) return absl::ResourceExhaustedError("no memory");
    left_ -= bytes;
    return ForwardingDevice::Allocate(bytes);
  }
  absl::Status CopyIn(void* to, const void* from, int64_t bytes) override {
    copied_in += bytes;
    return ForwardingDevice::CopyIn(to, from, bytes);
  }
  absl::Status CopyRowsIn(const RowsIn& rows) override {
    rows_in += static_cast<int64_t>(rows.rows.size());
    return ForwardingDevice::CopyRowsIn(rows);
  }
  absl::Status CopyOut(void* to, const void* from, int64_t bytes) override {
    copied_out += bytes;
    return ForwardingDevice::CopyOut(to, from, bytes);
  }

  int64_t copied_in = 0, rows_in = 0, copied_out = 0;

 private:
  int64_t left_;
};

constexpr int64_t kWidth = 8;  // of a row, in floats

Plan OrderedPlan() {
  JobSpec spec = PlainSpec({.tokens = 50, .heads = 1, .dim = kWidth});
  spec.ordering = Ordering{};
  return *MakePlan(spec, 2);
}

std::vector<float> Numbers(int64_t count, float first) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// Writes rows 3 to 6 at once, then rows 20, 0 and 9 by number.
void ExpectRowsComeBack(ShardStore& store, TensorKind tensor) {
  const std::vector<float> written = Numbers(4 * kWidth, 100);
  ASSERT_TRUE(store.Write(tensor, 3, 4, written.data()).ok());
  const std::vector<float> named = Numbers(3 * kWidth, 500);
  const std::vector<int64_t> rows = {20, 0, 9};
  ASSERT_TRUE(store.WriteRows(tensor, rows, named.data()).ok());
  std::vector<float> read(4 * kWidth);
  ASSERT_TRUE(store.Read(tensor, 3, 4, read.data()).ok());
  EXPECT_EQ(read, written);
  for (size_t i = 0; i < rows.size(); ++i) {
    read.resize(kWidth);
    ASSERT_TRUE(store.Read(tensor, rows[i], 1, read.data()).ok());
    EXPECT_EQ(read,
              std::vector<float>(named.begin() + kWidth * i, named.begin() + kWidth * (i + 1)));
  }
  // No other row was written.
  const std::set<int64_t> touched = {0, 3, 4, 5, 6, 9, 20};
  for (int64_t row = 0; row < store.rows(); ++row) {
    if (touched.contains(row)) continue;
    ASSERT_TRUE(store.Read(tensor, row, 1, read.data()).ok());
    EXPECT_EQ(read, std::vector<float>(kWidth)) << row;
  }
}

TEST(ShardStore, RowsComeBackFromHostMemory) {
  const Plan plan = OrderedPlan();
  const auto device = *MakeDevice({.threads = 1});
  const auto store = *ShardStore::Make(*device, plan, 1);
  ASSERT_EQ(store->rows(), 25);
  EXPECT_TRUE(store->host_memory());
  EXPECT_EQ(store->bytes(), ShardLayout(plan, 1).net_bytes());
  ExpectRowsComeBack(*store, TensorKind::kQ);
  ExpectRowsComeBack(*store, TensorKind::kOut);
  float first = 0;
  std::memcpy(&first, store->Row(TensorKind::kQ, 9), sizeof(first));
  EXPECT_EQ(first, 500.0f + 2 * kWidth) << "row 9 is not at Row(9)";
}

TEST(ShardStore, RowsInADevicesMemoryTravelByItsCalls) {
  const Plan plan = OrderedPlan();
  FarDevice device(1 << 20);
  const auto store = *ShardStore::Make(device, plan, 0);
  EXPECT_FALSE(store->host_memory());
  ExpectRowsComeBack(*store, TensorKind::kK);
  EXPECT_EQ(device.copied_in, 4 * kWidth * 4);
  EXPECT_EQ(device.rows_in, 3);
  EXPECT_EQ(device.copied_out, 25 * kWidth * 4);
}

TEST(ShardStore, TokensAreInHostMemoryAndInTheDevices) {
  const Plan plan = OrderedPlan();
  const std::vector<int64_t> tokens = {7, 3, 11};
  FarDevice far(1 << 20);
  const auto near = *MakeDevice({.threads = 1});
  for (Device* device : {static_cast<Device*>(&far), near.get()}) {
    const auto store = *ShardStore::Make(*device, plan, 0);
    ASSERT_EQ(store->tokens().size(), 25u);
    ASSERT_TRUE(store->WriteTokens(4, 3, tokens.data()).ok());
    EXPECT_EQ(store->tokens()[3], 0);
    EXPECT_EQ(store->tokens()[5], 3);
    EXPECT_EQ(store->tokens()[6], 11);
    int64_t there[3] = {};
    ASSERT_TRUE(device->CopyOut(there, store->device_tokens() + 4, sizeof(there)).ok());
    EXPECT_EQ(std::vector<int64_t>(there, there + 3), tokens);
    const bool apart = store->device_tokens() != store->tokens().data();
    EXPECT_EQ(apart, !device->host_memory());
  }
}

TEST(ShardStore, OverMemoryOfAnotherWritesThere) {
  const Plan plan = OrderedPlan();
  const ShardLayout layout(plan, 1);
  std::vector<std::byte> memory(layout.bytes());
  const HostShard shard(memory.data(), layout);
  const auto store = ShardStore::Over(shard);
  ExpectRowsComeBack(*store, TensorKind::kV);
  float first = 0;
  std::memcpy(&first, shard.Row(TensorKind::kV, 20), sizeof(first));
  EXPECT_EQ(first, 500.0f);
  const int64_t token = 42;
  ASSERT_TRUE(store->WriteTokens(24, 1, &token).ok());
  EXPECT_EQ(shard.tokens()[24], 42);
}

}  // namespace
}  // namespace hilbert_ring

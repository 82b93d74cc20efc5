#include "server/worker/delivered_rows.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr int64_t kTokens = 64;

void Add(v1::DeliveredRows& rows, int64_t begin, int64_t end) {
  v1::SlotRange& range = *rows.add_slots();
  range.set_begin(begin);
  range.set_end(end);
}

v1::DeliveredRows& AddTensor(v1::RunOpen& open, v1::Tensor tensor) {
  v1::DeliveredRows& rows = *open.add_delivered();
  rows.set_tensor(tensor);
  return rows;
}

TEST(DeliveredRows, AreThoseOfEachTensor) {
  v1::RunOpen open;
  v1::DeliveredRows& out = AddTensor(open, v1::TENSOR_OUT);
  Add(out, 0, 3);
  Add(out, 60, kTokens);
  Add(AddTensor(open, v1::TENSOR_LSE), 7, 8);
  const auto delivered = DeliveredOf(open, kTokens);
  ASSERT_TRUE(delivered.ok()) << delivered.status();
  EXPECT_THAT(delivered->of(TensorKind::kOut).ranges(), ElementsAre(Pair(0, 3), Pair(60, kTokens)));
  EXPECT_THAT(delivered->of(TensorKind::kLse).ranges(), ElementsAre(Pair(7, 8)));
}

TEST(DeliveredRows, AreNoneWhereNoneAreNamed) {
  const auto delivered = DeliveredOf({}, kTokens);
  ASSERT_TRUE(delivered.ok()) << delivered.status();
  for (const TensorKind tensor : kOutputKinds) {
    EXPECT_THAT(delivered->of(tensor).ranges(), IsEmpty());
  }
}

TEST(DeliveredRows, SlotsThatTheJobDoesNotHaveAreRefused) {
  for (const auto& [begin, end] : {std::pair(-1, 3), {3, 3}, {4, 3}, {60, 65}}) {
    v1::RunOpen open;
    Add(AddTensor(open, v1::TENSOR_OUT), begin, end);
    const absl::Status status = DeliveredOf(open, kTokens).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << begin << " to " << end << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("of 64"));
  }
}

TEST(DeliveredRows, SlotsThatAreNamedTwiceAreRefused) {
  v1::RunOpen open;
  Add(AddTensor(open, v1::TENSOR_OUT), 0, 10);
  Add(AddTensor(open, v1::TENSOR_OUT), 9, 12);
  EXPECT_TRUE(absl::IsInvalidArgument(DeliveredOf(open, kTokens).status()));
}

TEST(DeliveredRows, OfAnInputAreRefused) {
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_COORDS, v1::TENSOR_UNSPECIFIED}) {
    v1::RunOpen open;
    Add(AddTensor(open, tensor), 0, 1);
    EXPECT_TRUE(absl::IsInvalidArgument(DeliveredOf(open, kTokens).status())) << tensor;
  }
}

}  // namespace
}  // namespace hilbert_ring::server

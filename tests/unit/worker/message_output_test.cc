#include "server/worker/message_output.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr int64_t kJobTokens = 64;

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
  Add(out, 60, kJobTokens);
  Add(AddTensor(open, v1::TENSOR_LSE), 7, 8);
  const Delivered delivered = DeliveredOf(open, kJobTokens);
  EXPECT_THAT(delivered.of(TensorKind::kOut).ranges(),
              ElementsAre(Pair(0, 3), Pair(60, kJobTokens)));
  EXPECT_THAT(delivered.of(TensorKind::kLse).ranges(), ElementsAre(Pair(7, 8)));
}

}  // namespace
}  // namespace hilbert_ring::server

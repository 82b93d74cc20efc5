#include "server/worker/message_rows.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "wire/checksum.h"

namespace hilbert_ring::server {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class MessageWayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    JobSpec spec = PlainSpec({.tokens = 10, .heads = 1, .dim = 8});
    spec.ordering = Ordering{};
    plan_ = *MakePlan(spec, 1);
    device_ = *MakeDevice({.threads = 1});
    store_ = *ShardStore::Make(*device_, plan_, 0);
    rows_ = std::make_unique<MessageWay>(plan_.spec, plan_, 0, *store_, v1::RunOpen());
  }

  static v1::ShardRows Rows(v1::Tensor tensor, int64_t first, int64_t rows, char fill = 'r') {
    v1::ShardRows message;
    message.set_tensor(tensor);
    message.set_first_local_row(first);
    message.set_rows(rows);
    message.set_payload(std::string(rows * 32, fill));
    message.set_crc32c(wire::Crc32c(message.payload()));
    return message;
  }

  static v1::OrderPart Order(int64_t first, int64_t count) {
    v1::OrderPart part;
    part.set_first_local_row(first);
    part.set_tokens(std::string(count * 8, '\1'));
    return part;
  }

  // The payload in pieces, as a transport may deliver it: rows are cut anywhere.
  absl::Status TakeCut(const v1::RunRequest& message, std::string_view bytes) {
    wire::Payload payload;
    for (size_t begin = 0; begin < bytes.size(); begin += 7) payload.Append(bytes.substr(begin, 7));
    return rows_->Take(message, payload).status();
  }
  absl::Status Place(const v1::OrderPart& part) {
    v1::RunRequest message;
    *message.mutable_order() = part;
    return TakeCut(message, part.tokens());
  }
  absl::Status Place(const v1::ShardRows& rows) {
    v1::RunRequest message;
    *message.mutable_rows() = rows;
    return TakeCut(message, rows.payload());
  }

  char FirstByte(TensorKind tensor, int64_t row) {
    return static_cast<char>(*store_->Row(tensor, row));
  }

  Plan plan_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<ShardStore> store_;
  std::unique_ptr<MessageWay> rows_;
};

TEST_F(MessageWayTest, PlacesRangesAndLists) {
  ASSERT_TRUE(Place(Order(0, 4)).ok());
  ASSERT_TRUE(Place(Order(4, 6)).ok());
  EXPECT_EQ(store_->tokens()[9], 0x0101010101010101);
  ASSERT_TRUE(Place(Rows(v1::TENSOR_Q, 0, 10, 'q')).ok());
  ASSERT_TRUE(Place(Rows(v1::TENSOR_K, 0, 10, 'k')).ok());
  EXPECT_FALSE(rows_->FinishInput().ok());
  v1::ShardRows listed = Rows(v1::TENSOR_V, 0, 3);
  for (const int64_t row : {9, 0, 4}) listed.add_local_rows(row);
  listed.mutable_payload()->assign(std::string(32, 'a') + std::string(32, 'b') +
                                   std::string(32, 'c'));
  listed.set_crc32c(wire::Crc32c(listed.payload()));
  ASSERT_TRUE(Place(listed).ok());
  EXPECT_EQ(FirstByte(TensorKind::kV, 9), 'a');
  EXPECT_EQ(FirstByte(TensorKind::kV, 0), 'b');
  EXPECT_EQ(FirstByte(TensorKind::kV, 4), 'c');
  EXPECT_EQ(FirstByte(TensorKind::kV, 1), '\0');
  EXPECT_EQ(FirstByte(TensorKind::kK, 5), 'k');
  v1::ShardRows corrupt = Rows(v1::TENSOR_V, 0, 7);
  corrupt.set_crc32c(7);
  EXPECT_TRUE(absl::IsDataLoss(Place(corrupt)));
  ASSERT_TRUE(Place(Rows(v1::TENSOR_V, 0, 7)).ok());
  EXPECT_TRUE(rows_->FinishInput().ok());
}

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

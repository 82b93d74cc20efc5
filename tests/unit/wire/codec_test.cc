#include "wire/codec.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/plain_spec.h"
#include "wire/status.h"

namespace hilbert_ring::wire {
namespace {

using ::testing::HasSubstr;

TEST(Codec, NamesTheFieldThatIsWrong) {
  JobSpec spec;
  spec.branches = {{16, 1}};
  spec.ordering = Ordering{};
  const v1::JobSpec good = EncodeJobSpec(spec);
  const auto expect = [&](const char* field, const auto& spoil) {
    v1::JobSpec bad = good;
    spoil(bad);
    const auto decoded = DecodeJobSpec(bad);
    ASSERT_TRUE(absl::IsInvalidArgument(decoded.status())) << field;
    EXPECT_THAT(std::string(decoded.status().message()), HasSubstr(field));
    EXPECT_EQ(ReasonOf(decoded.status()), "INVALID_SPEC");
  };
  expect("dtype", [](v1::JobSpec& s) { s.clear_dtype(); });
  expect("dtype", [](v1::JobSpec& s) { s.set_dtype(static_cast<v1::DataType>(99)); });
  expect("mixing", [](v1::JobSpec& s) { s.clear_mixing(); });
  expect("tail", [](v1::JobSpec& s) { s.clear_tail(); });
  expect("ordering.curve", [](v1::JobSpec& s) { s.mutable_ordering()->clear_curve(); });
  expect("ordering.scope", [](v1::JobSpec& s) { s.mutable_ordering()->clear_scope(); });
  expect("dilations", [](v1::JobSpec& s) { s.add_dilations(2); });
  expect("alibi.distance", [](v1::JobSpec& s) { s.mutable_alibi()->add_slopes(1); });
  expect("alibi.distance", [](v1::JobSpec& s) {
    s.mutable_alibi()->set_distance(static_cast<v1::AlibiDistance>(99));
  });
  for (const int axes : {0, 1, 4}) {
    expect("alibi.axes", [axes](v1::JobSpec& s) {
      s.mutable_alibi()->set_distance(v1::ALIBI_DISTANCE_COORDS);
      s.mutable_alibi()->set_axes(axes);
    });
  }
  expect("alibi.axes", [](v1::JobSpec& s) {
    s.mutable_alibi()->set_distance(v1::ALIBI_DISTANCE_TOKENS);
    s.mutable_alibi()->set_axes(2);
  });
}

TEST(Codec, KeepsWhatChangesScores) {
  JobSpec spec;
  spec.branches = {{16, 1}};
  EXPECT_EQ(*DecodeJobSpec(EncodeJobSpec(spec)), spec);
  spec.softcap = 0.1;
  spec.sinks = {-1, 0.1, 0};
  spec.alibi = Alibi{.slopes = {0.1, 0, -2}};
  for (const Window& window : {Window{}, Window{.left = 0}, Window{.right = 0}}) {
    spec.window = window;
    EXPECT_EQ(*DecodeJobSpec(EncodeJobSpec(spec)), spec);
    spec.alibi->coordinate_axes = window.left ? 2 : 3;
  }
}

TEST(Codec, PlanSaysTheSameInBothForms) {
  JobSpec spec = PlainSpec({.tokens = 1000, .dim = 8});
  spec.branches = {{128, 1}, {1000, 4}};
  const auto plan = MakePlan(spec, 3);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const v1::PlanResponse message = EncodePlan(*plan);
  ASSERT_EQ(message.workers_size(), 3);
  ASSERT_EQ(message.branches_size(), 2);
  int64_t tokens = 0, received = 0;
  for (const v1::WorkerPlan& worker : message.workers()) {
    tokens += worker.tokens();
    received += worker.bytes_received();
    EXPECT_EQ(worker.resident_bytes(), worker.shard_bytes() + worker.accumulator_bytes() +
                                           worker.exchange_buffer_bytes() + worker.order_bytes() +
                                           worker.list_bytes());
  }
  EXPECT_EQ(tokens, 1000);
  EXPECT_EQ(received, message.bytes_exchanged());
  EXPECT_GT(received, 0);
  const auto json = nlohmann::json::parse(message.json());
  EXPECT_EQ(json.at("bytes_exchanged"), message.bytes_exchanged());
  EXPECT_EQ(json.at("workers")[0].at("shard")[0][0], message.workers(0).shard(0).begin());
  EXPECT_EQ(json.at("branches")[1].at("bytes_exchanged"), message.branches(1).bytes_exchanged());
  std::vector<int64_t> sent(3, 0), got(3, 0);
  for (const auto& transfer : json.at("transfers")) {
    EXPECT_GE(transfer.at("step"), 1);
    EXPECT_LE(transfer.at("step"), message.ring_steps());
    sent[transfer.at("from").get<int>()] += transfer.at("bytes").get<int64_t>();
    got[transfer.at("to").get<int>()] += transfer.at("bytes").get<int64_t>();
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(sent[rank], message.workers(rank).bytes_sent());
    EXPECT_EQ(got[rank], message.workers(rank).bytes_received());
  }
}

}  // namespace
}  // namespace hilbert_ring::wire

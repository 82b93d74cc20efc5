// What holds for any slides and any model.
#include <algorithm>
#include <cmath>

#include "engine/model/files/encode_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/random_slides.h"
#include "tests/unit/device/forwarding_device.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

using EncoderProperties = RandomSlidesTest;

TEST_F(EncoderProperties, TilesOf16BitsAreThoseNumbers) {
  EncoderInput input = RandomSlides({90}, 4);
  for (float& value : input.tiles) value = std::round(value * 8) / 8;  // exact in both
  const EncoderOutputs outputs{.states = {kLast}};
  const EncoderResult wide = Run(input, {.outputs = outputs});
  for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
    EXPECT_EQ(wide.states, Run(input, {.outputs = outputs, .tiles_dtype = dtype}).states);
  }
}

TEST_F(EncoderProperties, ACoordinateOutsideOfTheGridEndsTheJob) {
  EncoderInput input = RandomSlides({300}, 7);
  input.coords[2 * 217 + 1] = -3;
  const auto result = RunEncoder(model_, input, {.outputs = {.states = {kLast}}, .ranks = 2});
  EXPECT_TRUE(absl::IsOutOfRange(result.status())) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("coords[217] is ["));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("must be in [0, 25600)"));
}

TEST_F(EncoderProperties, TilesOfNoRankAndCoordinatesOfAnotherNumberAreRefused) {
  const EncoderInput input = RandomSlides({600}, 8);
  const EncoderPlan plan = MakeEncoderPlan(config(), DataType::kFloat32, {600}, 2).value();
  const auto device = MakeDevice({.threads = 1}).value();
  const auto made = EncoderRank::Make(model_, plan, 1, *device, {.states = {kLast}});
  ASSERT_TRUE(made.ok()) << made.status();
  const auto message = [&](int64_t first, int64_t count, size_t numbers) {
    const absl::Status status =
        (*made)->PlaceTiles({.first = first,
                             .count = count,
                             .values = input.tiles.data(),
                             .coords = std::span(input.coords).first(numbers)},
                            {});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message(599, 2, 4), HasSubstr("are not all within [0, 600)"));
  EXPECT_THAT(message(-1, 2, 4), HasSubstr("are not all within [0, 600)"));
  EXPECT_THAT(message(0, 2, 4), HasSubstr("tile 0 belongs to rank 0, not to rank 1"));
  EXPECT_THAT(message(598, 2, 0), HasSubstr("coords has 0 numbers, must have 4 for 2 tiles"));
  EXPECT_THAT(message(598, 2, 6), HasSubstr("coords has 6 numbers"));
  EXPECT_TRUE((*made)
                  ->PlaceTiles({.first = 598,
                                .count = 2,
                                .values = input.tiles.data(),
                                .coords = std::span(input.coords).first(4)},
                               {})
                  .ok());
}

// What is planned for all layers and the map of one is what travels.
TEST_F(EncoderProperties, BytesThatTravelAreThoseOfThePlan) {
  const EncoderInput input = RandomSlides({700, 3, 250}, 11);
  EncodeJob job{.config = config(),
                .slide_tiles = input.slide_tiles,
                .outputs = {.states = {kLast}, .attention_map = AttentionMapOutput{.layer = 1}}};
  for (const int ranks : {1, 2, 5}) {
    const EncoderResult result = Run(input, {.outputs = job.outputs, .ranks = ranks});
    const Plan whole = PlanOfJob(job, result.plan, 2);
    int64_t received = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(result.figures[rank].bytes_sent, whole.costs.workers[rank].bytes_sent) << rank;
      EXPECT_EQ(result.figures[rank].bytes_received, whole.costs.workers[rank].bytes_received)
          << rank;
      received += result.figures[rank].bytes_received;
    }
    EXPECT_EQ(received, whole.costs.bytes_exchanged);
    const int64_t layers_alone = config().layers * result.plan.attention.costs.bytes_exchanged;
    EXPECT_EQ(received > layers_alone, ranks > 1) << "the map takes something";
  }
}

// Allocations from the nth on are refused, or its memory is not the host's.
class LimitedDevice : public ForwardingDevice {
 public:
  LimitedDevice(std::unique_ptr<Device> device, int allocations, bool host)
      : ForwardingDevice(std::move(device)), left_(allocations), host_(host) {}

  bool host_memory() const override { return host_; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    if (left_-- <= 0) return absl::ResourceExhaustedError("none left");
    return device().Allocate(bytes);
  }

 private:
  int left_;
  const bool host_;
};

TEST_F(EncoderProperties, MemoryThatIsRefusedAtAnyPlaceIsAnError) {
  const EncoderPlan plan = MakeEncoderPlan(config(), DataType::kFloat32, {40}, 1).value();
  int allocations = 0;
  for (bool made = false; !made; ++allocations) {
    LimitedDevice device(MakeDevice({.threads = 2}).value(), allocations, true);
    const auto rank = EncoderRank::Make(model_, plan, 0, device, {.states = {kLast}});
    made = rank.ok();
    EXPECT_TRUE(made || absl::IsResourceExhausted(rank.status())) << rank.status();
  }
  EXPECT_GT(allocations, 5);
}

TEST_F(EncoderProperties, WhatDoesNotFitTogetherIsRefused) {
  const EncoderOutputs outputs{.states = {kLast}};
  const EncoderPlan plan = MakeEncoderPlan(config(), DataType::kFloat32, {40}, 1).value();
  LimitedDevice far(MakeDevice({.threads = 1}).value(), 100, false);
  EXPECT_TRUE(
      absl::IsFailedPrecondition(EncoderRank::Make(model_, plan, 0, far, outputs).status()));
  const auto device = MakeDevice({.threads = 1}).value();
  const EncoderPlan narrow = MakeEncoderPlan(config(), DataType::kBFloat16, {40}, 1).value();
  EXPECT_TRUE(
      absl::IsInvalidArgument(EncoderRank::Make(model_, narrow, 0, *device, outputs).status()));
  EncoderConfig other = config();
  other.layers = 1;
  const EncoderPlan shorter = MakeEncoderPlan(other, DataType::kFloat32, {40}, 1).value();
  EXPECT_TRUE(
      absl::IsInvalidArgument(EncoderRank::Make(model_, shorter, 0, *device, outputs).status()));
  EXPECT_TRUE(absl::IsOutOfRange(
      EncoderRank::Make(model_, plan, 0, *device, {.states = {kLast + 1}}).status()));
}

}  // namespace
}  // namespace hilbert_ring::testing

// Properties of any slides and any model.
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
  for (float& value : input.tiles) value = std::round(value * 8) / 8;  // exact in both types
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

// Refuses allocations from the nth on.
class LimitedDevice : public ForwardingDevice {
 public:
  LimitedDevice(std::unique_ptr<Device> device, int allocations)
      : ForwardingDevice(std::move(device)), left_(allocations) {}

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    if (left_-- <= 0) return absl::ResourceExhaustedError("none left");
    return device().Allocate(bytes);
  }

 private:
  int left_;
};

TEST_F(EncoderProperties, MemoryThatIsRefusedAtAnyPlaceIsAnError) {
  const EncoderPlan plan = MakeEncoderPlan(config(), DataType::kFloat32, {40}, 1).value();
  int allocations = 0;
  for (bool made = false; !made; ++allocations) {
    LimitedDevice device(MakeDevice({.threads = 2}).value(), allocations);
    const auto rank = EncoderRank::Make(model_, plan, 0, device, {.states = {kLast}});
    made = rank.ok();
    EXPECT_TRUE(made || absl::IsResourceExhausted(rank.status())) << rank.status();
  }
  EXPECT_GT(allocations, 5);
}

}  // namespace
}  // namespace hilbert_ring::testing

// What holds for any slides and any model: a slide's embedding depends on nothing but the slide.
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

class EncoderProperties : public RandomSlidesTest {
 protected:
  // Slide `slide` of the input alone.
  EncoderInput Alone(const EncoderInput& input, size_t slide) const {
    int64_t first = 0;
    for (size_t i = 0; i < slide; ++i) first += input.slide_tiles[i];
    const int64_t count = input.slide_tiles[slide], dim = config().tile_dim();
    return {
        .slide_tiles = {count},
        .tiles = {input.tiles.begin() + first * dim, input.tiles.begin() + (first + count) * dim},
        .coords = {input.coords.begin() + 2 * first, input.coords.begin() + 2 * (first + count)}};
  }

  static double FurthestOff(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double worst = a.size() == b.size() ? 0 : INFINITY;
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
      const double off = std::abs(double{a[i]} - b[i]) / (1 + std::abs(b[i]));
      worst = std::isnan(off) ? INFINITY : std::max(worst, off);
    }
    return worst;
  }
};

TEST_F(EncoderProperties, SlidesPackedIntoOneJobAreAsAlone) {
  const EncoderInput input = RandomSlides({5, 1, 300, 2, 64, 129}, 1);
  for (const Pooling pooling : {Pooling::kClass, Pooling::kMean}) {
    const EncoderOutputs outputs{.states = {0, kLast}, .pooling = pooling};
    for (const int ranks : {1, 3}) {
      const EncoderResult packed = Run(input, {.outputs = outputs, .ranks = ranks});
      for (size_t slide = 0; slide < input.slide_tiles.size(); ++slide) {
        const EncoderResult alone = Run(Alone(input, slide), {.outputs = outputs});
        for (const int64_t state : outputs.states) {
          const auto begin =
              packed.pooled.at(state).begin() + static_cast<int64_t>(slide) * config().embed_dim;
          EXPECT_LE(FurthestOff({begin, begin + config().embed_dim}, alone.pooled.at(state)), 2e-5)
              << "slide " << slide << ", state " << state << ", " << ranks << " ranks";
        }
      }
    }
  }
}

TEST_F(EncoderProperties, AnyNumberOfRanksGivesTheSameRows) {
  const EncoderInput input = RandomSlides({400, 33, 700}, 2);
  const EncoderOutputs outputs{.states = {1, kLast}};
  const EncoderResult one = Run(input, {.outputs = outputs});
  for (const int ranks : {2, 4, 7}) {
    const EncoderResult many = Run(input, {.outputs = outputs, .ranks = ranks, .threads = 1});
    int64_t received = 0;
    for (const EncoderFigures& figures : many.figures) received += figures.bytes_received;
    EXPECT_EQ(received, config().layers * many.plan.attention.costs.bytes_exchanged);
    EXPECT_GT(received, 0);
    for (const int64_t state : outputs.states) {
      EXPECT_LE(FurthestOff(many.states.at(state), one.states.at(state)), 2e-5) << ranks;
    }
  }
}

TEST_F(EncoderProperties, TheSameShardsGiveTheSameBits) {
  const EncoderInput input = RandomSlides({350, 20}, 3);
  for (const Pooling pooling : {Pooling::kNone, Pooling::kMean}) {
    const EncoderOutputs outputs{.states = {kLast}, .pooling = pooling};
    const EncoderResult first = Run(input, {.outputs = outputs, .ranks = 2});
    const EncoderResult second =
        Run(input, {.outputs = outputs, .ranks = 2, .ring = RingKind::kGloo, .tiles_at_once = 5});
    EXPECT_EQ(first.states, second.states);
    EXPECT_EQ(first.pooled, second.pooled);
  }
}

TEST_F(EncoderProperties, TilesOf16BitsAreThoseNumbers) {
  EncoderInput input = RandomSlides({90}, 4);
  for (float& value : input.tiles) value = std::round(value * 8) / 8;  // exact in both
  const EncoderOutputs outputs{.states = {kLast}};
  const EncoderResult wide = Run(input, {.outputs = outputs});
  for (const DataType dtype : {DataType::kBFloat16, DataType::kFloat16}) {
    EXPECT_EQ(wide.states, Run(input, {.outputs = outputs, .tiles_dtype = dtype}).states);
  }
}

TEST_F(EncoderProperties, ATilesPlaceMatters) {
  EncoderInput input = RandomSlides({50}, 5);
  const EncoderOutputs outputs{.states = {kLast}, .pooling = Pooling::kMean};
  const EncoderResult before = Run(input, {.outputs = outputs});
  std::swap(input.coords[0], input.coords[1]);
  EXPECT_NE(before.pooled, Run(input, {.outputs = outputs}).pooled);
}

TEST_F(EncoderProperties, MemoryIsThatOfThePlanAndFallsWithTheRanks) {
  const EncoderInput input = RandomSlides({6000}, 6);
  int64_t before = 0;
  for (const int ranks : {1, 2, 4}) {
    const EncoderOutputs outputs{.states = {kLast}, .pooling = Pooling::kMean};
    const EncoderResult result = Run(input, {.outputs = outputs, .ranks = ranks});
    int64_t most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t planned = MemoryOf(result.plan, rank, 2, DataType::kFloat32, outputs).total();
      const int64_t taken = result.figures[rank].memory_peak_bytes;
      EXPECT_LE(taken, planned);
      EXPECT_GE(static_cast<double>(taken), 0.85 * static_cast<double>(planned));
      most = std::max(most, taken);
    }
    if (before > 0) {
      EXPECT_LT(most, before);
    }
    before = most;
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

TEST_F(EncoderProperties, SlidesWithoutTilesAreRefused) {
  for (const std::vector<int64_t>& tiles :
       {std::vector<int64_t>{}, std::vector<int64_t>{0}, std::vector<int64_t>{5, 0, 3},
        std::vector<int64_t>{-1}}) {
    const auto plan = MakeEncoderPlan(config(), DataType::kFloat32, tiles, 2);
    EXPECT_TRUE(absl::IsInvalidArgument(plan.status())) << plan.status();
  }
}

// In each slide and head, however it is sharded.
TEST_F(EncoderProperties, WhatTilesGetOfTheClassTokenIsOneTogether) {
  const EncoderInput input = RandomSlides({700, 3, 250}, 9);
  for (const int64_t layer : {1, 2}) {
    const EncoderOutputs outputs{
        .states = {kLast},
        .attention_map = AttentionMapOutput{.layer = layer, .columns = MapColumns::kHeads}};
    for (const int ranks : {1, 4, 5}) {
      for (const RingKind ring : {RingKind::kInProcess, RingKind::kGloo}) {
        const EncoderResult result = Run(input, {.outputs = outputs, .ranks = ranks, .ring = ring});
        const SlideRows& rows = result.plan.rows;
        ASSERT_EQ(std::ssize(result.map), rows.tokens() * config().heads);
        for (int64_t slide = 0; slide < rows.slides(); ++slide) {
          for (int64_t head = 0; head < config().heads; ++head) {
            double sum = 0;
            for (int64_t i = rows.FirstToken(slide); i < rows.FirstToken(slide + 1); ++i) {
              sum += result.map[i * config().heads + head];
            }
            EXPECT_NEAR(sum, 1, 1e-5) << "slide " << slide << " head " << head;
          }
        }
      }
    }
  }
}

// A map takes nothing from the rest.
TEST_F(EncoderProperties, StatesAreTheSameWithAMap) {
  const EncoderInput input = RandomSlides({300}, 10);
  EncoderOutputs outputs{.states = {0, kLast}};
  const EncoderResult without = Run(input, {.outputs = outputs, .ranks = 3});
  outputs.attention_map = {.layer = 1};
  const EncoderResult with = Run(input, {.outputs = outputs, .ranks = 3});
  EXPECT_EQ(with.states, without.states);
  EXPECT_EQ(with.map.size(), 301u);
  EXPECT_TRUE(without.map.empty());
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

// Allocations from the nth on are refused.
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

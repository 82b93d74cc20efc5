// What holds for any slides and any model: a slide's embedding depends on nothing but the slide.
#include <algorithm>
#include <cmath>

#include "engine/model/files/encode_job.h"
#include "gtest/gtest.h"
#include "tests/engine/random_slides.h"

namespace hilbert_ring::testing {
namespace {

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

TEST_F(EncoderProperties, MemoryIsThatOfThePlanAndFallsWithTheRanks) {
  const EncoderOutputs pooled{.states = {kLast}, .pooling = Pooling::kMean};
  const EncoderOutputs all_pooled{.states = {0, 1, kLast}, .pooling = Pooling::kMean};
  const EncoderOutputs mapped{.states = {kLast},
                              .attention_map = AttentionMapOutput{.columns = MapColumns::kHeads}};
  struct {
    std::vector<int64_t> slides;
    EncoderOutputs outputs;
  } const cases[] = {
      {{6000}, pooled}, {std::vector<int64_t>(1000, 3), all_pooled}, {{6000}, mapped}};
  for (const auto& [slides, outputs] : cases) {
    const EncoderInput input = RandomSlides(slides, 6);
    int64_t before = 0;
    for (const int ranks : {1, 2, 4}) {
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

}  // namespace
}  // namespace hilbert_ring::testing

// Slides of random tiles through a small model, in the test's own process.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/load_encoder.h"
#include "tests/engine/run_encoder.h"
#include "tests/golden/encoder_case.h"

namespace hilbert_ring::testing {

inline constexpr int64_t kLast = 2;  // the model's last state

class RandomSlidesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto golden = LoadEncoderCase("slides_packed");
    ASSERT_TRUE(golden.ok()) << golden.status();
    auto model = LoadEncoder(golden->folder);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  const EncoderConfig& config() const { return model_->config(); }

  EncoderInput RandomSlides(std::vector<int64_t> slide_tiles, uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    EncoderInput input{.slide_tiles = std::move(slide_tiles)};
    int64_t tiles = 0;
    for (const int64_t of_slide : input.slide_tiles) tiles += of_slide;
    for (int64_t i = 0; i < tiles * config().tile_dim(); ++i) input.tiles.push_back(normal(random));
    const auto pixels = static_cast<double>(config().position->grid * config().position->tile_size);
    std::uniform_real_distribution<double> place(0, pixels);
    for (int64_t i = 0; i < 2 * tiles; ++i) input.coords.push_back(std::floor(place(random)));
    return input;
  }

  EncoderResult Run(const EncoderInput& input, const EncoderRun& run) const {
    auto result = RunEncoder(model_, input, run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : EncoderResult{.plan = {.rows = SlideRows({}, 0)}};
  }

  std::shared_ptr<const EncoderModel> model_;
};

}  // namespace hilbert_ring::testing

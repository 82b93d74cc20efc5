// Specs of encoders' jobs that no correct client sends.
#include "server/models/encode_spec.h"

#include <cstdint>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

EncoderConfig TwoLayers() {
  return {.input_dim = 8,
          .embed_dim = 16,
          .heads = 2,
          .ffn_dim = 16,
          .layers = 2,
          .branches = {{.segment = 16}},
          .norm_eps = 1e-6,
          .class_token = true};
}

class EncodeSpecTest : public ::testing::Test {
 protected:
  EncodeSpecTest() {
    spec_.set_dtype(v1::DATA_TYPE_FLOAT32);
    spec_.set_compute(v1::DATA_TYPE_FLOAT32);
    spec_.set_pooling(v1::POOLING_NONE);
    spec_.add_slide_tiles(3);
  }

  std::string Refusal(absl::StatusCode code) const {
    const absl::Status status =
        DecodeEncodeSpec(spec_, TwoLayers(), {.max_tokens = 100, .max_sequences = 10}).status();
    if (status.ok()) return "";
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(wire::ReasonOf(status), "INVALID_SPEC") << status;
    EXPECT_LT(status.message().size(), 300u);
    return std::string(status.message());
  }

  v1::EncodeSpec spec_;
};

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kOutOfRange = absl::StatusCode::kOutOfRange;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// The late rows of the published code are those of a second segment.
TEST(EncodeNotes, OnSeveralSegmentsThatTheirDilationDoesNotDivide) {
  EncodeJob job{.config = TwoLayers(), .slide_tiles = {3, 15}};  // and a class token each
  const auto notes = [&](const Branch& branch) {
    job.config.branches = {branch};
    return NotesOn(job).size();
  };
  EXPECT_EQ(notes({.segment = 8, .dilation = 3}), 1u);
  EXPECT_EQ(notes({.segment = 8, .dilation = 4}), 0u);
  EXPECT_EQ(notes({.segment = 15, .dilation = 2}), 1u);
  EXPECT_EQ(notes({.segment = 17, .dilation = 3}), 0u) << "the only segment";
}

TEST_F(EncodeSpecTest, ACorrectSpecIsAccepted) { EXPECT_EQ(Refusal(kInvalid), ""); }

TEST_F(EncodeSpecTest, SlidesHaveTilesAndNoMoreThanAJobTakes) {
  spec_.clear_slide_tiles();
  EXPECT_THAT(Refusal(kInvalid), HasSubstr("slide_tiles is empty"));
  for (const int64_t tiles : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    spec_.clear_slide_tiles();
    spec_.add_slide_tiles(1);
    spec_.add_slide_tiles(tiles);
    EXPECT_THAT(Refusal(kInvalid), HasSubstr("slide_tiles[1] is"));
    EXPECT_THAT(Refusal(kInvalid), HasSubstr("must be at least 1"));
  }
  // Sums that overflow, together or with the class token, and one tile too many.
  spec_.clear_slide_tiles();
  spec_.add_slide_tiles(kMost / 2);
  spec_.add_slide_tiles(kMost / 2 + 2);
  EXPECT_THAT(Refusal(kOutOfRange), HasSubstr("more tokens than 100"));
  spec_.clear_slide_tiles();
  spec_.add_slide_tiles(kMost);
  EXPECT_THAT(Refusal(kOutOfRange), HasSubstr("more tokens than 100"));
  spec_.set_slide_tiles(0, 99);  // and the class token
  EXPECT_EQ(Refusal(kOutOfRange), "");
  spec_.set_slide_tiles(0, 100);
  EXPECT_THAT(Refusal(kOutOfRange), HasSubstr("slide_tiles[0] is 100"));
  spec_.set_slide_tiles(0, 98);
  spec_.add_slide_tiles(1);
  EXPECT_THAT(Refusal(kOutOfRange), HasSubstr("slide_tiles[1] is 1"));
}

TEST_F(EncodeSpecTest, SlidesAreNoMoreThanSequencesMayBe) {
  spec_.clear_slide_tiles();
  for (int i = 0; i < 10; ++i) spec_.add_slide_tiles(1);
  EXPECT_EQ(Refusal(kOutOfRange), "");
  spec_.add_slide_tiles(1);
  EXPECT_THAT(Refusal(kOutOfRange), HasSubstr("slide_tiles has 11 slides, the limit is 10"));
}

TEST_F(EncodeSpecTest, UnknownEnumValuesAreRefused) {
  for (const auto set : {+[](v1::EncodeSpec& spec) { spec.set_dtype(v1::DataType(77)); },
                         +[](v1::EncodeSpec& spec) { spec.set_compute(v1::DATA_TYPE_FLOAT16); },
                         +[](v1::EncodeSpec& spec) { spec.set_pooling(v1::Pooling(-5)); }}) {
    const v1::EncodeSpec before = spec_;
    set(spec_);
    EXPECT_THAT(Refusal(kInvalid), HasSubstr("must be"));
    spec_ = before;
  }
}

}  // namespace
}  // namespace hilbert_ring::server

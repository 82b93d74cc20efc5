#include "client/cpp/encode.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "client/cpp/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/fake_encoder.h"
#include "tests/unit/client/manual_timing.h"
#include "tests/unit/client/resend_request.h"

namespace hilbert_ring::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two slides, of 3 and 5 tiles.
class EncodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto job = JobOf(FakeEncoder::Model(true));
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = *std::move(job);
    job_.slide_tiles = {3, 5};
    job_.outputs.states = {2};
    for (int i = 0; i < 8 * 4; ++i) tiles_.push_back(static_cast<float>(i));
    for (int i = 0; i < 8 * 2; ++i) coords_.push_back(10.0 * i);
  }

  EncodeInputs Inputs() const {
    return {.job = job_,
            .tiles = std::as_bytes(std::span(tiles_)),
            .coordinates = [this](int64_t first_row, std::span<double> values) {
              std::copy_n(coords_.begin() + 2 * first_row, values.size(), values.begin());
            }};
  }

  absl::StatusOr<v1::Report> Run(const FakeEncoder& service, const JobOptions& options = {}) {
    int64_t rows = 1, map = 1;
    for (const int64_t axis : job_.RowsShape()) rows *= axis;
    for (const int64_t axis : job_.MapShape()) map *= axis;
    rows_.assign(static_cast<size_t>(rows), -1);
    map_.assign(job_.outputs.attention_map ? static_cast<size_t>(map) : 0, -1);
    return Encode(Connect(service.address()), Inputs(),
                  {.rows = std::as_writable_bytes(std::span(rows_)),
                   .attention_map = std::as_writable_bytes(std::span(map_))},
                  options);
  }

  std::string Refused() const {
    const absl::Status status = CheckEncode(Inputs());
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  EncodeJob job_;
  std::vector<float> tiles_;
  std::vector<double> coords_;
  std::vector<float> rows_, map_;
};

TEST_F(EncodeTest, RowsThatAreAskedForAgainAreSentAgain) {
  for (const v1::Tensor tensor : {v1::TENSOR_TILES, v1::TENSOR_TILE_COORDS}) {
    const FakeEncoder service({.resend = Request(tensor, {{2, 4}})});
    const auto report = Run(service);
    ASSERT_TRUE(report.ok()) << report.status();
    int64_t rows = 0;
    for (const v1::Chunk& chunk : service.record().chunks) {
      if (chunk.tensor() == tensor) rows += chunk.rows();
    }
    EXPECT_EQ(rows, 12);
  }
}

TEST_F(EncodeTest, AJobIsTriedAgain) {
  const FakeEncoder service({.failures = 2});
  ManualTiming timing;
  int64_t layer = 0;
  const auto report = Run(service, {.job_id = "slide-7",
                                    .progress = [&](const JobProgress& now) { layer = now.layer; },
                                    .timing = timing.timing()});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(layer, 2);
  EXPECT_EQ(service.calls(), 3);
  EXPECT_EQ(service.record().open.job_id(), "slide-7");
  EXPECT_EQ(service.record().open.attempt(), 2);
  for (int64_t i = 0; i < 160; ++i) EXPECT_EQ(rows_[i], 200 + i / 16) << i;
}

TEST_F(EncodeTest, WhatTheModelDoesNotTakeIsRefusedBeforeAnythingIsSent) {
  coords_[2 * 6 + 1] = 200;
  EXPECT_THAT(Refused(), HasSubstr("coords[6]"));
  EXPECT_THAT(Refused(), HasSubstr("200"));
  const FakeEncoder service;
  EXPECT_TRUE(absl::IsOutOfRange(Run(service).status()));
  EXPECT_EQ(service.calls(), 0);
  coords_[2 * 6 + 1] = 0;
  EXPECT_TRUE(CheckEncode(Inputs()).ok());
  for (size_t i = 6; i < 16; ++i) coords_[i] /= 160;  // normalized coordinates of the second slide
  EXPECT_THAT(Refused(),
              HasSubstr("coords of slide 1 has 1 distinct places, must have at least 3"));
  for (size_t i = 6; i < 16; ++i) coords_[i] = 1.25 * static_cast<double>(i);
  EXPECT_TRUE(CheckEncode(Inputs()).ok()) << "an eighth of a tile apart";
  job_.outputs.states = {3};
  EXPECT_THAT(Refused(), HasSubstr("states[0] is 3, must be 0 to 2"));
  job_.outputs.states = {2};
  job_.slide_tiles = {8, 0};
  EXPECT_THAT(Refused(), HasSubstr("sequence_lengths is 0"));
  job_.slide_tiles = {3, 6};
  EXPECT_THAT(Refused(), HasSubstr("tiles: has 128 bytes, must have 144"));
  job_.slide_tiles = {3, 5};
  EncodeInputs inputs = Inputs();
  inputs.coordinates = nullptr;
  EXPECT_THAT(std::string(CheckEncode(inputs).message()), HasSubstr("coords are missing"));
}

TEST_F(EncodeTest, ModelsWithoutPositionsTakeNoCoordinates) {
  const FakeEncoder service({.positions = false});
  job_.config.position.reset();
  ASSERT_TRUE(Run(service).ok());
  EXPECT_FALSE(service.record().tensors.contains(v1::TENSOR_TILE_COORDS));
}

TEST(EncodeModels, AreAskedForAgainWhileTheServiceIsAway) {
  ManualTiming timing;
  const auto away = Connect("127.0.0.1:1");
  const absl::Status at_once = RequestModel(away, "small").status();
  EXPECT_TRUE(absl::IsUnavailable(at_once)) << at_once;
  EXPECT_EQ(timing.total(), absl::ZeroDuration());
  const absl::Time begin = absl::Now();
  const absl::Status later =
      RequestModel(away, "small",
                   {.outage_timeout = absl::Milliseconds(300), .timing = timing.timing()})
          .status();
  EXPECT_TRUE(absl::IsUnavailable(later)) << later;
  EXPECT_THAT(std::string(later.message()), HasSubstr("away for its limit of 300ms"));
  EXPECT_THAT(timing.slept, ElementsAre(absl::Milliseconds(50)));
  EXPECT_GT(absl::Now() - begin, absl::Milliseconds(200));
}

TEST(EncodeModels, AreListedAndFoundByName) {
  const FakeEncoder service;
  const auto channel = Connect(service.address());
  const auto models = RequestModels(channel);
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_EQ(models->models_size(), 2);
  EXPECT_TRUE(absl::IsNotFound(RequestModel(channel, "large").status()));
  EXPECT_TRUE(JobOf(RequestModel(channel, "small").value()).ok());
  const absl::Status broken = JobOf(RequestModel(channel, "broken").value()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(broken));
  EXPECT_THAT(std::string(broken.message()), HasSubstr("layers is required"));
}

}  // namespace
}  // namespace hilbert_ring::client

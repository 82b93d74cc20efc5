// Encoders through the real service: every golden case with one worker and several, and what is
// refused.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/service/encode_call.h"
#include "tests/service/encode_cases.h"
#include "tests/support/cluster.h"
#include "tests/support/test_depth.h"
#include "tests/support/test_folder.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class ServiceEncode : public ::testing::TestWithParam<int> {};

TEST_P(ServiceEncode, EveryCase) {
  auto cluster =
      Cluster::Start({.workers = GetParam(), .arguments = {"--model-dir=" + ModelsOfCases()}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  CheckEveryCase(**cluster);
}

INSTANTIATE_TEST_SUITE_P(Workers, ServiceEncode,
                         ::testing::ValuesIn(AtDepth<std::vector<int>>({3}, {1, 3}, {1, 2, 3, 5})));

TEST(ServiceEncodeWithoutSharedMemory, RowsAreSent) {
  auto cluster = Cluster::Start(
      {.workers = 2, .arguments = {"--share-memory=false", "--model-dir=" + ModelsOfCases()}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  CheckEveryCase(**cluster);
}

// The workers write rows, the coordinator puts pooled vectors together.
TEST(ServiceEncodeStates, ComeAsAskedFor) {
  const auto cluster = Cluster::Start(
      {.workers = 3, .arguments = {"--check-rows=24", "--model-dir=" + ModelsOfCases()}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto golden = LoadEncoderCase("slide_three_layers");
  ASSERT_TRUE(golden.ok()) << golden.status();
  for (const v1::Pooling pooling : {v1::POOLING_NONE, v1::POOLING_CLASS, v1::POOLING_MEAN}) {
    SCOPED_TRACE(pooling);
    const bool pooled = pooling != v1::POOLING_NONE;
    v1::EncodeSpec spec = SpecOf(golden->name, golden->slide_tiles, pooling);
    const auto rows_of = [&](const std::vector<int64_t>& states) {
      spec.mutable_states()->Assign(states.begin(), states.end());
      const auto result = EncodeRaw((*cluster)->Channel(), spec, InputsOf(*golden));
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) return std::vector<float>{};
      EXPECT_EQ(result->report.rows_checked(), 0);
      EXPECT_THAT(result->report.notes(), Contains(HasSubstr("--check-rows")));
      return result->outputs.at(pooled ? v1::TENSOR_POOLED : v1::TENSOR_STATES);
    };
    const std::vector<float> rising = rows_of({0, 1, 2, 3}), mixed = rows_of({3, 1, 3, 0, 0});
    ASSERT_FALSE(rising.empty());
    const int64_t dim = std::ssize(golden->class_out) / std::ssize(golden->slide_tiles);
    const int64_t rows = std::ssize(rising) / 4 / dim;
    int64_t place = 0;
    for (const int64_t state : {3, 1, 3, 0, 0}) {
      EXPECT_EQ(OfState(mixed, rows, 5, place++), OfState(rising, rows, 4, state)) << state;
    }
  }
}

TEST(ServiceEncodeTrace, EveryWorkerTellsEveryLayer) {
  auto cluster = Cluster::Start({.workers = 3, .arguments = {"--model-dir=" + ModelsOfCases()}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto golden = LoadEncoderCase("slide_three_layers");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const v1::EncodeSpec spec = SpecOf(golden->name, golden->slide_tiles, v1::POOLING_MEAN);
  const auto result =
      EncodeRaw((*cluster)->Channel(), spec, InputsOf(*golden), {.want_trace = true});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->report.workers_size(), 3);
  for (const v1::WorkerReport& worker : result->report.workers()) {
    std::map<int64_t, double> rows, attention;  // by layer: when it ended
    for (const v1::Span& span : worker.spans()) {
      EXPECT_LE(span.begin_seconds(), span.end_seconds());
      if (span.kind() == v1::Span::KIND_ROWS) rows[span.layer()] = span.end_seconds();
      if (span.kind() == v1::Span::KIND_ATTEND) attention[span.layer()] = span.end_seconds();
    }
    ASSERT_EQ(rows.size(), 4u);
    ASSERT_EQ(attention.size(), 3u);
    for (int64_t layer = 1; layer <= 3; ++layer) {
      EXPECT_LE(rows.at(layer - 1), attention.at(layer));
      EXPECT_LE(attention.at(layer), rows.at(layer));
    }
  }
}

// A folder of models that a test may change.
class ServiceEncodeErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto golden = LoadEncoderCase("slide_small");
    ASSERT_TRUE(golden.ok()) << golden.status();
    golden_ = *golden;
    std::filesystem::copy(golden_.folder, folder_ / "small");
    Start({});
  }

  void Start(const std::vector<std::string>& further) {
    std::vector<std::string> arguments = {"--model-dir=" + folder_.path()};
    arguments.insert(arguments.end(), further.begin(), further.end());
    cluster_.reset();
    auto cluster = Cluster::Start({.workers = 1, .arguments = arguments});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
  }

  v1::EncodeSpec Spec() const { return SpecOf("small", golden_.slide_tiles, v1::POOLING_MEAN); }

  absl::Status Encode(const v1::EncodeSpec& spec) const { return Encode(spec, golden_.coords); }
  absl::Status Encode(const v1::EncodeSpec& spec, const std::vector<double>& coords) const {
    EncodeInputs inputs = InputsOf(golden_);
    inputs.coords = coords;
    return EncodeRaw(cluster_->Channel(), spec, inputs).status();
  }

  void ExpectReason(const absl::Status& status, const wire::Reason& reason,
                    const std::string& says) const {
    EXPECT_EQ(wire::ReasonOf(status), reason.name) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }

  // It goes on.
  ~ServiceEncodeErrors() override { EXPECT_TRUE(Encode(Spec()).ok()) << Encode(Spec()); }

  TestFolder folder_;
  EncoderCase golden_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(ServiceEncodeErrors, WhatIsWrongInTheSpecIsNamed) {
  v1::EncodeSpec spec = Spec();
  spec.set_model("none");
  ExpectReason(Encode(spec), wire::reason::kModelNotFound, "model none");
  spec.set_model("../small");
  ExpectReason(Encode(spec), wire::reason::kInvalidSpec, "model: a name");
  spec = Spec();
  spec.set_digest(std::string(64, '0'));
  ExpectReason(Encode(spec), wire::reason::kModelChanged, "digest");
  spec = Spec();
  spec.set_slide_tiles(0, 0);
  ExpectReason(Encode(spec), wire::reason::kInvalidSpec, "slide_tiles[0] is 0");
  spec = Spec();
  spec.set_slide_tiles(0, int64_t{1} << 62);
  ExpectReason(Encode(spec), wire::reason::kInvalidSpec, "slide_tiles[0] is");
  spec = Spec();
  spec.add_states(99);
  ExpectReason(Encode(spec), wire::reason::kInvalidSpec, "states[0] is 99");
  spec = Spec();
  spec.set_compute(v1::DATA_TYPE_FLOAT16);
  ExpectReason(Encode(spec), wire::reason::kInvalidSpec, "compute is");
  spec = Spec();
  spec.clear_pooling();
  ExpectReason(Encode(spec), wire::reason::kInvalidSpec, "pooling is");
  spec = Spec();
  spec.set_attention_map_layer(99);
  ExpectReason(Encode(spec), wire::reason::kInvalidSpec, "attention_map");
}

TEST_F(ServiceEncodeErrors, ACoordinateOutsideOfTheGridIsNamedWithItsRow) {
  std::vector<double> coords = golden_.coords;
  coords.at(2 * 3 + 1) = -1;
  ExpectReason(Encode(Spec(), coords), wire::reason::kBadCoordinates, "3");
}

TEST_F(ServiceEncodeErrors, MethodsTakeTheirOwnKindOfJob) {
  const auto stub = cluster_->Stub();
  grpc::ClientContext context;
  const auto stream = stub->Attend(&context);
  v1::AttendRequest request;
  *request.mutable_open()->mutable_encode() = Spec();
  stream->Write(request);
  v1::AttendResponse response;
  while (stream->Read(&response)) {
  }
  ExpectReason(wire::FromGrpc(stream->Finish()), wire::reason::kInvalidOpen, "encode");
}

TEST_F(ServiceEncodeErrors, AModelIsDescribed) {
  const auto stub = v1::EncoderService::NewStub(cluster_->Channel());
  grpc::ClientContext context;
  v1::GetModelRequest request;
  request.set_name("small");
  v1::Model model;
  ASSERT_TRUE(stub->GetModel(&context, request, &model).ok());
  EXPECT_EQ(model.workers(), 1);
  EXPECT_EQ(model.digest().size(), 64u);
  EXPECT_EQ(model.config(), FileText(folder_ / "small/config.json"));
  EXPECT_TRUE(model.pools() && model.positions() && model.class_token());
  EXPECT_EQ(model.layers(), std::ssize(golden_.states) / std::ssize(golden_.out) - 1);
  grpc::ClientContext other;
  request.set_name("none");
  EXPECT_EQ(stub->GetModel(&other, request, &model).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServiceEncodeErrors, AModelWithoutRoomIsRefused) {
  Start({"--model-memory=1000"});
  ExpectReason(Encode(Spec()), wire::reason::kModelNotOnWorkers, "--model-memory");
  Start({});
}

// Workers hear of it within their next look and beat.
TEST_F(ServiceEncodeErrors, AChangedFolderIsANewVersion) {
  std::ofstream(folder_ / "small/config.json", std::ios::app) << " ";
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  absl::Status status = Encode(Spec());
  while (!status.ok() && std::chrono::steady_clock::now() < end) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    status = Encode(Spec());
  }
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ServiceEncodeErrors, AFolderThatIsNotRightIsShown) {
  std::filesystem::create_directory(folder_ / "broken");
  std::ofstream(folder_ / "broken/config.json") << "{";
  const auto stub = v1::EncoderService::NewStub(cluster_->Channel());
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  ASSERT_TRUE(stub->ListModels(&context, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 2);
  EXPECT_EQ(models.models(0).name(), "broken");
  EXPECT_NE(models.models(0).error(), "");
  EXPECT_EQ(models.models(1).error(), "");
  v1::EncodeSpec spec = Spec();
  spec.set_model("broken");
  ExpectReason(Encode(spec), wire::reason::kModelUnusable, "model broken");
}

}  // namespace
}  // namespace hilbert_ring::testing

#include <filesystem>
#include <fstream>
#include <map>

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

using ::testing::HasSubstr;

std::unique_ptr<Cluster> StartWithModels(int workers, const char* sharing) {
  return Cluster::Start(
             {.workers = workers,
              .arguments = {sharing, "--check-rows=8", "--model-dir=" + ModelsOfCases()}})
      .value();
}

class ServiceEncode : public ::testing::TestWithParam<int> {};

TEST_P(ServiceEncode, EveryCase) {
  CheckEveryCase(*StartWithModels(GetParam(), "--share-memory=true"));
}

INSTANTIATE_TEST_SUITE_P(Workers, ServiceEncode,
                         ::testing::ValuesIn(AtDepth<std::vector<int>>({3}, {1, 3}, {1, 2, 3, 5})));

TEST(ServiceEncodeWithoutSharedMemory, RowsAreSent) {
  CheckEveryCase(*StartWithModels(2, "--share-memory=false"));
}

TEST(ServiceEncodeTrace, EveryWorkerReportsEveryLayer) {
  const auto cluster = StartWithModels(3, "--share-memory=true");
  const auto golden = LoadEncoderCase("slide_three_layers");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const v1::EncodeSpec spec = SpecOf(golden->name, golden->slide_tiles, v1::POOLING_MEAN);
  const auto result = EncodeRaw(cluster->Channel(), spec, InputsOf(*golden), {.want_trace = true});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->report.notes(), ::testing::Contains(HasSubstr("--check-rows")));
  ASSERT_EQ(result->report.workers_size(), 3);
  for (const v1::WorkerReport& worker : result->report.workers()) {
    std::map<int64_t, double> rows, attention;  // by layer: its end
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

class ServiceEncodeErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    golden_ = LoadEncoderCase("slide_small").value();
    std::filesystem::copy(golden_.folder, folder_ / "small");
    cluster_ =
        Cluster::Start({.workers = 1, .arguments = {"--model-dir=" + folder_.path()}}).value();
  }

  v1::EncodeSpec Spec() const { return SpecOf("small", golden_.slide_tiles, v1::POOLING_MEAN); }

  void ExpectReason(const v1::EncodeSpec& spec, const wire::Reason& reason,
                    const std::string& message) const {
    const absl::Status status = EncodeRaw(cluster_->Channel(), spec, InputsOf(golden_)).status();
    EXPECT_EQ(wire::ReasonOf(status), reason.name) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }

  TestFolder folder_;
  EncoderCase golden_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(ServiceEncodeErrors, MistakesOfTheSpecAreNamedAndTheNextJobIsRight) {
  v1::EncodeSpec spec = Spec();
  spec.set_model("none");
  ExpectReason(spec, wire::reason::kModelNotFound, "model none");
  spec = Spec();
  spec.set_digest(std::string(64, '0'));
  ExpectReason(spec, wire::reason::kModelChanged, "digest");
  spec = Spec();
  spec.add_states(99);
  ExpectReason(spec, wire::reason::kInvalidSpec, "states[0] is 99");
  const auto next = EncodeRaw(cluster_->Channel(), Spec(), InputsOf(golden_));
  EXPECT_TRUE(next.ok()) << next.status();
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
  EXPECT_EQ(wire::ReasonOf(wire::FromGrpc(stream->Finish())), "INVALID_OPEN");
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

TEST_F(ServiceEncodeErrors, ABrokenFolderIsListed) {
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
  ExpectReason(spec, wire::reason::kModelUnusable, "model broken");
}

}  // namespace
}  // namespace hilbert_ring::testing

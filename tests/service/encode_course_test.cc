// The course of encoders' jobs through the real service: folders that change meanwhile, workers of
// another version, jobs that are cancelled or late.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/service/encode_call.h"
#include "tests/support/cluster.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::testing {
namespace {

constexpr char kModel[] = "slide_three_layers";
constexpr int64_t kTiles = 100'000, kMostTiles = 3'200'000;

// A folder of models that has one, and may have another version of it.
class EncodeCourse : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto golden = LoadEncoderCase(kModel);
    ASSERT_TRUE(golden.ok()) << golden.status();
    golden_ = *golden;
    CopyTo(models_);
  }

  void CopyTo(const TestFolder& models) const {
    std::filesystem::copy(golden_.folder, models / kModel);
  }

  // Other weights: the last one of the file is another.
  static void ChangeWeights(const TestFolder& models) {
    const std::string file = models / absl::StrCat(kModel, "/model.safetensors");
    std::string text = FileText(file);
    text.at(text.size() - 2) ^= 0x40;
    std::ofstream(file + ".new", std::ios::binary) << text;
    std::filesystem::rename(file + ".new", file);
  }

  void Start(const ClusterOptions& options) {
    auto cluster = Cluster::Start(options);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
  }
  void Start() { Start({.workers = 2, .arguments = {"--model-dir=" + models_.path()}}); }

  absl::StatusOr<EncodeResult> Encode(int64_t tiles, const EncodeOptions& options = {}) const {
    return EncodeRaw(cluster_->Channel(), SpecOf(kModel, {tiles}, v1::POOLING_MEAN),
                     ManyTiles(golden_, tiles, 5), options);
  }

  // One job ended so, as /metrics has it once its end is counted.
  void ExpectCounted(const std::string& code) const {
    const std::string series =
        absl::StrCat("hilbert_ring_model_jobs_total{code=\"", code, "\",model=\"", kModel, "\"}");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    auto counted = cluster_->Metric(series);
    while (!counted.ok() && std::chrono::steady_clock::now() < end) {
      counted = cluster_->Metric(series);
    }
    ASSERT_TRUE(counted.ok()) << counted.status();
    EXPECT_EQ(*counted, 1);
  }

  const TestFolder models_;
  EncoderCase golden_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(EncodeCourse, AJobKeepsItsVersionWhileTheFolderChanges) {
  Start();
  bool changed = false;
  int64_t tiles = kTiles;
  absl::StatusOr<EncodeResult> before, during;
  for (; !changed; tiles *= 2) {
    ASSERT_LE(tiles, kMostTiles) << "no job was computed for long enough";
    before = Encode(tiles);
    ASSERT_TRUE(before.ok()) << before.status();
    during = Encode(tiles, {.progress = [&](const v1::Progress& at) {
                      if (changed || at.layer() < 1) return;
                      changed = true;
                      ChangeWeights(models_);
                    }});
    ASSERT_TRUE(during.ok()) << during.status();
  }
  EXPECT_EQ(during->report.model_digest(), before->report.model_digest());
  EXPECT_EQ(during->outputs, before->outputs);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  auto after = Encode(300);
  while (!after.ok() && std::chrono::steady_clock::now() < end) {
    EXPECT_TRUE(absl::IsUnavailable(after.status())) << after.status();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    after = Encode(300);
  }
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_NE(after->report.model_digest(), before->report.model_digest());
}

// However many workers there are, those that have the job's version of the model get it.
TEST_F(EncodeCourse, AWorkerOfAnotherVersionGetsNoPartOfTheJob) {
  const TestFolder other;
  CopyTo(other);
  ChangeWeights(other);
  const std::string own = "--model-dir=" + models_.path();
  Start({.workers = 1,
         .place = WorkerPlace::kBeside,
         .arguments = {own, "--job-workers=2"},
         .worker_arguments = {own}});
  ASSERT_TRUE(cluster_->AddWorker({"--model-dir=" + other.path()}).ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  auto seen = cluster_->Describe();
  while (seen.ok() && seen->workers_size() < 2 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    seen = cluster_->Describe();
  }
  ASSERT_TRUE(seen.ok()) << seen.status();
  ASSERT_EQ(seen->workers_size(), 2);
  const auto alone = Encode(20'000);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->report.workers_size(), 1);
  const auto stub = v1::EncoderService::NewStub(cluster_->Channel());
  grpc::ClientContext context;
  v1::GetModelRequest request;
  request.set_name(kModel);
  v1::Model model;
  ASSERT_TRUE(stub->GetModel(&context, request, &model).ok());
  EXPECT_EQ(model.workers(), 1);
  ASSERT_TRUE(cluster_->AddWorker({own}).ok());
  int workers = 1;
  while (workers < 2 && std::chrono::steady_clock::now() < end) {
    const auto job = Encode(20'000);
    ASSERT_TRUE(job.ok()) << job.status();
    workers = job->report.workers_size();
  }
  EXPECT_EQ(workers, 2);
}

TEST_F(EncodeCourse, ACancelledJobFreesItsWorkers) {
  Start();
  absl::Status status;
  for (int64_t tiles = kTiles; status.ok(); tiles *= 2) {
    ASSERT_LE(tiles, kMostTiles) << "no job was computed for long enough";
    status = Encode(tiles, {.cancel_at_layer = 1}).status();
  }
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(Encode(300).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  ExpectCounted("CANCELLED");
}

TEST_F(EncodeCourse, ADeadlineEndsTheJob) {
  Start();
  absl::Status status;
  for (int64_t tiles = kTiles; status.ok(); tiles *= 2) {
    ASSERT_LE(tiles, kMostTiles) << "no job took long enough";
    status = Encode(tiles, {.limit = std::chrono::milliseconds(500)}).status();
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(Encode(300).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  ExpectCounted("DEADLINE_EXCEEDED");
}

}  // namespace
}  // namespace hilbert_ring::testing

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/service/encode_call.h"
#include "tests/support/await.h"
#include "tests/support/cluster.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::testing {
namespace {

constexpr char kModel[] = "slide_three_layers";
constexpr int64_t kTiles = 100'000, kMostTiles = 3'200'000;

class EncodeCourse : public ::testing::Test {
 protected:
  void SetUp() override { CopyTo(models_); }

  void CopyTo(const TestFolder& models) const {
    std::filesystem::copy(golden_.folder, models / kModel);
  }

  static void ChangeWeights(const TestFolder& models) {
    const std::string file = models / absl::StrCat(kModel, "/model.safetensors");
    std::string text = FileText(file);
    text.at(text.size() - 2) ^= 0x40;
    std::ofstream(file + ".new", std::ios::binary) << text;
    std::filesystem::rename(file + ".new", file);
  }

  std::string Models() const { return "--model-dir=" + models_.path(); }
  void Start() { cluster_ = Cluster::Start({.workers = 2, .arguments = {Models()}}).value(); }

  absl::StatusOr<EncodeResult> Encode(int64_t tiles, const EncodeOptions& options = {}) const {
    return EncodeRaw(cluster_->Channel(), SpecOf(kModel, {tiles}, v1::POOLING_MEAN),
                     ManyTiles(golden_, tiles, 5), options);
  }

  // Makes the job long enough for the options to end it.
  absl::StatusCode EndOf(const EncodeOptions& options) const {
    absl::Status status;
    for (int64_t tiles = kTiles; status.ok() && tiles <= kMostTiles; tiles *= 2) {
      status = Encode(tiles, options).status();
    }
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(Encode(300).ok());
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    return status.code();
  }

  const TestFolder models_;
  const EncoderCase golden_ = LoadEncoderCase(kModel).value();
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(EncodeCourse, AJobKeepsItsVersionWhileTheFolderChanges) {
  Start();
  bool changed = false;
  absl::StatusOr<EncodeResult> before, during;
  for (int64_t tiles = kTiles; !changed; tiles *= 2) {
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
  auto after = Encode(300);
  EXPECT_TRUE(Await([&] {
    EXPECT_TRUE(after.ok() || absl::IsUnavailable(after.status())) << after.status();
    return after.ok() || (after = Encode(300)).ok();
  }));
  EXPECT_NE(after.value().report.model_digest(), before->report.model_digest());
}

// Only workers with the job's version of the model get it.
TEST_F(EncodeCourse, AWorkerOfAnotherVersionGetsNoPartOfTheJob) {
  const TestFolder other;
  CopyTo(other);
  ChangeWeights(other);
  cluster_ = Cluster::Start({.workers = 1,
                             .place = WorkerPlace::kBeside,
                             .arguments = {Models(), "--job-workers=2"},
                             .worker_arguments = {Models()}})
                 .value();
  ASSERT_TRUE(cluster_->AddWorker({"--model-dir=" + other.path()}).ok());
  ASSERT_TRUE(Await([&] { return cluster_->Describe().value().workers_size() == 2; }));
  EXPECT_EQ(Encode(20'000).value().report.workers_size(), 1);
  ASSERT_TRUE(cluster_->AddWorker({Models()}).ok());
  EXPECT_TRUE(Await([&] { return Encode(20'000).value().report.workers_size() == 2; }));
}

TEST_F(EncodeCourse, ACancelledJobFreesItsWorkers) {
  Start();
  EXPECT_EQ(EndOf({.cancel_at_layer = 1}), absl::StatusCode::kCancelled);
}

TEST_F(EncodeCourse, ADeadlineEndsTheJob) {
  Start();
  EXPECT_EQ(EndOf({.limit = std::chrono::milliseconds(500)}), absl::StatusCode::kDeadlineExceeded);
  // The metric appears once the job's end is counted.
  const std::string series = absl::StrCat(
      "hilbert_ring_model_jobs_total{code=\"DEADLINE_EXCEEDED\",model=\"", kModel, "\"}");
  EXPECT_TRUE(Await([&] { return cluster_->Metric(series).value_or(0) == 1; }));
}

}  // namespace
}  // namespace hilbert_ring::testing

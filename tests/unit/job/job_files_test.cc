// Steps of a job at its files, some of which get no answer.
#include "server/job/job_files.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/frozen_disk.h"
#include "tests/support/hung_folder.h"
#include "tests/support/manual_time.h"
#include "tests/support/plain_spec.h"
#include "tests/support/test_folder.h"
#include "wire/codec.h"
#include "wire/npy_header.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::HungFolder;
using ::testing::IsEmpty;

class JobFilesTest : public ::testing::Test {
 protected:
  JobFilesTest() {
    std::filesystem::create_directories(folder_ / "out");
    for (const std::string name : {"q", "k", "v"}) {
      std::ofstream(folder_ / name) << wire::FormatNpyHeader(wire::NpyType::kFloat32, {{64, 2, 16}})
                                    << std::string(64 * 2 * 16 * 4, '\0');
    }
    root_ = *DataRoot::Open(folder_.path());
    for (const auto& [tensor, path] : {std::pair(v1::TENSOR_Q, "q"),
                                       {v1::TENSOR_K, "k"},
                                       {v1::TENSOR_V, "v"},
                                       {v1::TENSOR_OUT, "out/o"}}) {
      v1::TensorFile& file = *open_.add_files();
      file.set_tensor(tensor);
      file.set_path(path);
    }
  }

  absl::StatusOr<std::unique_ptr<JobFiles>> Open(milliseconds limit) {
    return JobFiles::Open(root_, {}, open_, *work_,
                          {.steps = steps_, .client = client_, .caller = "lab", .limit = limit});
  }

  // Of the output and of what leads to it.
  std::vector<std::string> Outputs() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "out")) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  const std::unique_ptr<JobWork> work_ = MakeAttentionWork(PlainSpec(), {});
  const testing::TestFolder folder_;
  std::shared_ptr<DataRoot> root_;
  v1::Open open_;
  JobStop client_;
  FileSteps steps_;
};

TEST_F(JobFilesTest, OutputsGetTheirNamesOrAreRemoved) {
  const auto files = Open(hours(1));
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_TRUE((*files)->BeginExecution().ok());
  EXPECT_EQ(Outputs().size(), 1);
  (*files)->GiveUp();
  EXPECT_THAT(Outputs(), IsEmpty());
  ASSERT_TRUE((*files)->BeginExecution().ok());
  ASSERT_TRUE((*files)->Commit(client_).ok());
  EXPECT_THAT(Outputs(), ::testing::ElementsAre("o"));
}

TEST_F(JobFilesTest, WhatIsNotCommittedIsRemovedWithThem) {
  {
    const auto files = Open(hours(1));
    ASSERT_TRUE(files.ok()) << files.status();
    ASSERT_TRUE((*files)->BeginExecution().ok());
  }
  EXPECT_THAT(Outputs(), IsEmpty());
}

TEST_F(JobFilesTest, AfterTheStopNoOutputGetsItsName) {
  const auto files = Open(hours(1));
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_TRUE((*files)->BeginExecution().ok());
  JobStop stop;
  stop.Request(absl::AbortedError("a worker was lost"));
  EXPECT_EQ((*files)->Commit(stop), absl::AbortedError("a worker was lost"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/o"));
}

TEST_F(JobFilesTest, FilesThatCannotBeOpenedForNobodyAnswersAreRefused) {
  const auto hung = HungFolder::Mount(folder_ / "out");
  if (!hung.ok()) GTEST_SKIP() << hung.status();
  const auto files = Open(milliseconds(200));
  EXPECT_EQ(wire::ReasonOf(files.status()), "DATA_ROOT_GONE");
  EXPECT_THAT(std::string(files.status().message()),
              HasSubstr("--data-root: opening files: no answer within 200 ms (--stall-timeout)"));
  EXPECT_EQ(steps_.left(), 1);
}

TEST_F(JobFilesTest, AfterAStepThatWasLeftNoneBegins) {
  auto files = Open(seconds(2));
  ASSERT_TRUE(files.ok()) << files.status();
  {
    const auto hung = HungFolder::Mount(folder_ / "out");
    if (!hung.ok()) GTEST_SKIP() << hung.status();
    const absl::Status status = (*files)->BeginExecution();
    EXPECT_EQ(wire::ReasonOf(status), "DATA_ROOT_GONE") << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("making outputs: no answer"));
    const Deadline begun = Clock::now();
    EXPECT_EQ((*files)->BeginExecution(), status);
    EXPECT_EQ((*files)->Commit(client_), status);
    (*files)->GiveUp();
    files->reset();
    EXPECT_LT(Clock::now() - begun, JobFiles::kRemoveLimit);
    EXPECT_TRUE(Eventually([this] { return steps_.left() == 1; }));
  }
  EXPECT_TRUE(Eventually([this] { return steps_.left() == 0; }));
}

// The step goes on when it can, and nobody is left who would remove what it makes.
TEST_F(JobFilesTest, AStepThatWasLeftRemovesWhatItMakes) {
  std::filesystem::create_directory(folder_ / "disk");
  const auto disk = testing::FrozenDisk::Make(folder_ / "disk");
  if (!disk.ok()) GTEST_SKIP() << disk.status();
  open_.mutable_files(3)->set_path("disk/o");
  auto files = Open(seconds(2));
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_TRUE((*disk)->Freeze());
  EXPECT_EQ(wire::ReasonOf((*files)->BeginExecution()), "DATA_ROOT_GONE");
  files->reset();
  ASSERT_TRUE((*disk)->Thaw());
  EXPECT_TRUE(Eventually([this] { return steps_.left() == 0; }));
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "disk")) {
    EXPECT_EQ(entry.path().filename(), "lost+found");
  }
}

TEST_F(JobFilesTest, WhoLeavesWhileOutputsGetTheirNamesIsToldThatTheyMay) {
  std::filesystem::create_directory(folder_ / "disk");
  const auto disk = testing::FrozenDisk::Make(folder_ / "disk");
  if (!disk.ok()) GTEST_SKIP() << disk.status();
  open_.mutable_files(3)->set_path("disk/o");
  auto files = Open(seconds(20));
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_TRUE((*files)->BeginExecution().ok());
  ASSERT_TRUE((*disk)->Freeze());  // which syncs what there is: a name alone is left to be written
  std::jthread leaves([this] {
    std::this_thread::sleep_for(milliseconds(100));
    client_.Request(absl::CancelledError("the client left"));
  });
  const Deadline begun = Clock::now();
  const absl::Status status = (*files)->Commit(client_);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the client left; outputs may have their"));
  EXPECT_GE(Clock::now() - begun, JobFiles::kRemoveLimit) << "it might still end";
  ASSERT_TRUE((*disk)->Thaw());
  files->reset();
  EXPECT_TRUE(Eventually([this] { return steps_.left() == 0; }));
}

TEST_F(JobFilesTest, AClientThatLeavesEndsTheWait) {
  const auto hung = HungFolder::Mount(folder_ / "out");
  if (!hung.ok()) GTEST_SKIP() << hung.status();
  client_.Request(absl::CancelledError("the client left"));
  EXPECT_EQ(Open(hours(1)).status(), absl::CancelledError("the client left"));
  EXPECT_EQ(steps_.left(), 1);
}

}  // namespace
}  // namespace hilbert_ring::server

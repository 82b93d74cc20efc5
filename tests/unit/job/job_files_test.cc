// Steps of a job at its files, some of which get no answer.
#include "server/job/job_files.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

TEST_F(JobFilesTest, AClientThatLeavesEndsTheWait) {
  const auto hung = HungFolder::Mount(folder_ / "out");
  if (!hung.ok()) GTEST_SKIP() << hung.status();
  client_.Request(absl::CancelledError("the client left"));
  EXPECT_EQ(Open(hours(1)).status(), absl::CancelledError("the client left"));
  EXPECT_EQ(steps_.left(), 1);
}

}  // namespace
}  // namespace hilbert_ring::server

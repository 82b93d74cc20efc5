// Files of a job, and steps that get no answer.
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
    return JobFiles::Open(root_.get(), {}, open_, *work_, threads_, limit);
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
  std::unique_ptr<DataRoot> root_;
  v1::Open open_;
  KeptThreads threads_;
};

TEST_F(JobFilesTest, OutputsGetTheirNamesOrAreRemoved) {
  for (const bool whole : {false, true}) {
    auto files = Open(hours(1));
    ASSERT_TRUE(files.ok()) << files.status();
    for (int execution = 0; execution < 2; ++execution) {
      ASSERT_TRUE((*files)->BeginExecution().ok());
      EXPECT_EQ(Outputs().size(), 1) << "those of the execution before are removed";
    }
    if (whole) ASSERT_TRUE((*files)->Commit(JobStop()).ok());
    files->reset();
    EXPECT_EQ(Outputs(), whole ? std::vector<std::string>{"o"} : std::vector<std::string>{});
  }
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

TEST_F(JobFilesTest, AStepThatGetsNoAnswerEndsTheJob) {
  const auto files = Open(milliseconds(200));
  ASSERT_TRUE(files.ok()) << files.status();
  const auto hung = HungFolder::Mount(folder_ / "out");
  if (!hung.ok()) GTEST_SKIP() << hung.status();
  const absl::Status status = (*files)->BeginExecution();
  EXPECT_EQ(wire::ReasonOf(status), "DATA_ROOT_GONE");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no answer within 200 ms (--stall-timeout)"));
  EXPECT_EQ((*files)->BeginExecution(), status);
  EXPECT_EQ(threads_.count(), 1) << "one step waits";
}

}  // namespace
}  // namespace hilbert_ring::server

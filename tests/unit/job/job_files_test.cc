// Whose files a job may name. What becomes of them is tests/service/by_reference_test.cc's.
#include "server/job/job_files.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "tests/support/test_folder.h"
#include "wire/codec.h"
#include "wire/npy_header.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

class JobFilesTest : public ::testing::Test {
 protected:
  JobFilesTest() {
    for (const std::string folder : {"lab", "night/slides", "."}) {
      std::filesystem::create_directories(folder_ / folder);
      for (const std::string name : {"q", "k", "v"}) {
        std::ofstream(folder_ / absl::StrCat(folder, "/", name))
            << wire::FormatNpyHeader(wire::NpyType::kFloat32, {{64, 2, 16}})
            << std::string(64 * 2 * 16 * 4, '\0');
      }
    }
    root_ = *DataRoot::Open(folder_.path());
  }

  // A job whose files are all in `folder`.
  v1::Open OpenOf(const std::string& folder) const {
    v1::Open open;
    *open.mutable_spec() = wire::EncodeJobSpec(spec_);
    for (const auto& [tensor, name] : {std::pair(v1::TENSOR_Q, "q"),
                                       {v1::TENSOR_K, "k"},
                                       {v1::TENSOR_V, "v"},
                                       {v1::TENSOR_OUT, "out"}}) {
      v1::TensorFile& file = *open.add_files();
      file.set_tensor(tensor);
      file.set_path(folder + name);
    }
    return open;
  }

  std::string ReasonOf(const Caller& caller, const std::string& folder) {
    const v1::Open open = OpenOf(folder);
    const auto files = JobFiles::Open(root_.get(), caller, open, *work_);
    if (!files.ok()) return wire::ReasonOf(files.status());
    absl::Status status = (*files)->BeginExecution();
    if (!status.ok()) return wire::ReasonOf(status);
    v1::RunOpen run;
    (*files)->AddTo(run);
    return run.files(0).path();
  }

  const JobSpec spec_ = PlainSpec();
  const std::unique_ptr<JobWork> work_ = MakeAttentionWork(spec_, {});
  testing::TestFolder folder_;
  std::unique_ptr<DataRoot> root_;
};

TEST_F(JobFilesTest, PathsBeginAtTheCallersFolder) {
  EXPECT_EQ(ReasonOf({}, ""), "q");
  EXPECT_EQ(ReasonOf({}, "lab/"), "lab/q");
  EXPECT_EQ(ReasonOf({.name = "lab"}, ""), "lab/q");
  EXPECT_EQ(ReasonOf({.name = "eye", .folder = "night/slides"}, ""), "night/slides/q");
  EXPECT_EQ(ReasonOf({.name = "eye", .folder = "."}, "lab/"), "lab/q");
}

TEST_F(JobFilesTest, NoCallerReachesTheFilesOfAnother) {
  EXPECT_EQ(ReasonOf({.name = "lab"}, "../night/slides/"), "FILE_PATH");
  EXPECT_EQ(ReasonOf({.name = "lab"}, "night/slides/"), "FILE_NOT_FOUND");
  EXPECT_EQ(ReasonOf({.name = "eye"}, ""), "FILE_NOT_FOUND");  // it has no folder
  EXPECT_EQ(ReasonOf({.name = "../lab"}, ""), "FILE_PATH");
  EXPECT_EQ(ReasonOf({.name = "spiffe://lab"}, ""), "FILE_PATH");
}

TEST_F(JobFilesTest, AnInputThatWasWrittenToIsNotReadAgain) {
  const v1::Open open = OpenOf("");
  const auto files = JobFiles::Open(root_.get(), {}, open, *work_);
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_TRUE((*files)->BeginExecution().ok());
  std::ofstream(folder_ / "k", std::ios::app) << "more";
  EXPECT_EQ(wire::ReasonOf((*files)->Commit(JobStop())), "FILE_CHANGED");
  EXPECT_EQ(wire::ReasonOf((*files)->BeginExecution()), "FILE_CHANGED");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

}  // namespace
}  // namespace hilbert_ring::server

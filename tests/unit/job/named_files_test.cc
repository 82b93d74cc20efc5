#include "server/job/named_files.h"

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
#include "tests/support/plain_spec.h"
#include "tests/support/test_folder.h"
#include "wire/codec.h"
#include "wire/npy_header.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

absl::Status Take(const ClientMessage&) { return absl::OkStatus(); }

class NamedFilesTest : public ::testing::Test {
 protected:
  NamedFilesTest() {
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
    const auto files = NamedFiles::Open(root_.get(), caller, open, *work_);
    if (!files.ok()) return wire::ReasonOf(files.status());
    absl::Status status = (*files)->Prepare(Take);
    if (!status.ok()) return wire::ReasonOf(status);
    v1::RunOpen run;
    (*files)->AddTo(run);
    return run.files(0).path();
  }

  const JobSpec spec_ = PlainSpec();
  const std::unique_ptr<JobWork> work_ = MakeAttentionWork(spec_);
  testing::TestFolder folder_;
  std::unique_ptr<DataRoot> root_;
};

TEST_F(NamedFilesTest, PathsBeginAtTheCallersFolder) {
  EXPECT_EQ(ReasonOf({}, ""), "q");
  EXPECT_EQ(ReasonOf({}, "lab/"), "lab/q");
  EXPECT_EQ(ReasonOf({.name = "lab"}, ""), "lab/q");
  EXPECT_EQ(ReasonOf({.name = "eye", .folder = "night/slides"}, ""), "night/slides/q");
  EXPECT_EQ(ReasonOf({.name = "eye", .folder = "."}, "lab/"), "lab/q");
}

TEST_F(NamedFilesTest, NoCallerReachesTheFilesOfAnother) {
  EXPECT_EQ(ReasonOf({.name = "lab"}, "../night/slides/"), "FILE_PATH");
  EXPECT_EQ(ReasonOf({.name = "lab"}, "night/slides/"), "FILE_NOT_FOUND");
  EXPECT_EQ(ReasonOf({.name = "eye"}, ""), "FILE_NOT_FOUND");  // it has no folder
  EXPECT_EQ(ReasonOf({.name = "../lab"}, ""), "FILE_PATH");
  EXPECT_EQ(ReasonOf({.name = "spiffe://lab"}, ""), "FILE_PATH");
  EXPECT_EQ(ReasonOf({.name = "."}, ""), "FILE_PATH");
  EXPECT_EQ(ReasonOf({.name = ".."}, "lab/"), "FILE_PATH");
  EXPECT_EQ(ReasonOf({.name = "night/slides"}, ""), "FILE_PATH") << "in the folder of night";
}

std::string HeaderOf(const NamedFiles& files, const std::string& root, v1::Tensor tensor) {
  v1::RunOpen run;
  files.AddTo(run);
  for (const v1::ShardFile& file : run.files()) {
    if (file.tensor() != tensor) continue;
    return testing::FileText(root + "/" + file.path()).substr(0, file.offset());
  }
  return "";
}

TEST_F(NamedFilesTest, Bfloat16LeavesAsItCameWhateverIsNamedFirst) {
  JobSpec spec = spec_;
  spec.dtype = DataType::kBFloat16;
  const std::vector<int64_t> shape = {64, 2, 16};
  for (const std::string name : {"q", "k", "v"}) {
    std::ofstream(folder_ / name) << wire::FormatNpyHeader(wire::NpyType::kUInt16, shape)
                                  << std::string(64 * 2 * 16 * 2, '\0');
  }
  const auto work = MakeAttentionWork(spec);
  v1::Open open = OpenOf("");
  *open.mutable_spec() = wire::EncodeJobSpec(spec);
  open.mutable_files()->SwapElements(0, 3);
  const auto files = NamedFiles::Open(root_.get(), {}, open, *work);
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_TRUE((*files)->Prepare(Take).ok());
  EXPECT_EQ(HeaderOf(**files, folder_.path(), v1::TENSOR_OUT),
            wire::FormatNpyHeader(wire::NpyType::kUInt16, shape));
}

TEST_F(NamedFilesTest, ARawOutputIsTheTensor) {
  v1::Open open = OpenOf("");
  v1::RawFile& raw = *open.mutable_files(3)->mutable_raw();
  for (const int64_t axis : {64, 2, 16}) raw.add_shape(axis);
  raw.set_dtype(v1::DATA_TYPE_FLOAT32);
  const auto reason = [&] {
    const auto files = NamedFiles::Open(root_.get(), {}, open, *work_);
    return files.ok() ? "" : wire::ReasonOf(files.status());
  };
  EXPECT_EQ(reason(), "");
  raw.set_dtype(v1::DATA_TYPE_FLOAT16);
  EXPECT_EQ(reason(), "FILE_MISSHAPEN");
  raw.clear_dtype();
  EXPECT_EQ(reason(), "INVALID_OPEN");
  raw.set_dtype(v1::DATA_TYPE_FLOAT32);
  raw.set_shape(1, 3);
  EXPECT_EQ(reason(), "FILE_MISSHAPEN");
  raw.set_shape(1, 2);
  raw.set_offset(8);
  EXPECT_EQ(reason(), "INVALID_OPEN");
}

TEST_F(NamedFilesTest, AnInputIsTheTensor) {
  const std::string whole = testing::FileText(folder_ / "q");
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {whole.substr(0, whole.size() - 1), "rows take"},
      {"no array", "not a .npy file"},
      {wire::FormatNpyHeader(wire::NpyType::kFloat32, {{64, 2, 8}}), "(64, 2, 16)"},
      {wire::FormatNpyHeader(wire::NpyType::kFloat16, {{64, 2, 16}}), "float16"}};
  for (const auto& [text, message] : wrong) {
    std::ofstream(folder_ / "q", std::ios::binary) << text;
    const auto files = NamedFiles::Open(root_.get(), {}, OpenOf(""), *work_);
    EXPECT_EQ(wire::ReasonOf(files.status()), "FILE_MISSHAPEN");
    EXPECT_THAT(std::string(files.status().message()), HasSubstr(message));
  }
}

TEST_F(NamedFilesTest, EachTensorHasItsPath) {
  v1::Open missing = OpenOf("");
  missing.mutable_files()->DeleteSubrange(0, 1);
  v1::Open twice = OpenOf("");
  v1::TensorFile lse = twice.files(3);
  lse.set_tensor(v1::TENSOR_LSE);
  *twice.add_files() = lse;
  twice.set_want_lse(true);
  const auto work = MakeAttentionWork(spec_, true);
  for (const auto& [open, message] :
       {std::pair(missing, "Q is missing"), std::pair(twice, "two outputs are out")}) {
    const auto files = NamedFiles::Open(root_.get(), {}, open, *work);
    EXPECT_EQ(wire::ReasonOf(files.status()), "INVALID_OPEN");
    EXPECT_THAT(std::string(files.status().message()), HasSubstr(message));
  }
}

TEST_F(NamedFilesTest, AnOutputIsNoInput) {
  v1::Open open = OpenOf("");
  std::filesystem::create_hard_link(folder_ / "k", folder_ / "out");
  const auto files = NamedFiles::Open(root_.get(), {}, open, *work_);
  EXPECT_THAT(std::string(files.status().message()), HasSubstr("the output out is the input k"));
}

TEST_F(NamedFilesTest, AnInputThatChangedInPlaceIsReported) {
  const v1::Open open = OpenOf("");
  const auto files = NamedFiles::Open(root_.get(), {}, open, *work_);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto before = std::filesystem::last_write_time(folder_ / "k");
  std::filesystem::last_write_time(folder_ / "k", before + std::chrono::seconds(1));
  const absl::Status status = (*files)->Prepare(Take);
  EXPECT_EQ(wire::ReasonOf(status), "FILE_CHANGED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("its modification time changed"));
}

TEST_F(NamedFilesTest, OutputsGetTheirNamesOrAreRemoved) {
  const auto outputs = [this] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "lab")) {
      const std::string name = entry.path().filename();
      if (name.size() > 1) names.push_back(name);
    }
    return names;
  };
  v1::Open open = OpenOf("lab/");
  for (const bool whole : {false, true}) {
    auto files = NamedFiles::Open(root_.get(), {}, open, *work_);
    ASSERT_TRUE(files.ok()) << files.status();
    for (int execution = 0; execution < 2; ++execution) {
      ASSERT_TRUE((*files)->Prepare(Take).ok());
      EXPECT_EQ(outputs().size(), 1) << "those of the execution before are removed";
    }
    if (whole) EXPECT_TRUE((*files)->Commit(JobStop()).ok());
    files->reset();
    EXPECT_EQ(outputs(), whole ? std::vector<std::string>{"out"} : std::vector<std::string>{});
  }
}

TEST_F(NamedFilesTest, AfterTheStopNoOutputGetsItsName) {
  const auto files = NamedFiles::Open(root_.get(), {}, OpenOf("lab/"), *work_);
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_TRUE((*files)->Prepare(Take).ok());
  JobStop stop;
  stop.Request(absl::AbortedError("a worker was lost"));
  EXPECT_EQ((*files)->Commit(stop), absl::AbortedError("a worker was lost"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "lab/out"));
}

TEST_F(NamedFilesTest, AnInputThatWasWrittenToIsNotReadAgain) {
  const v1::Open open = OpenOf("");
  const auto files = NamedFiles::Open(root_.get(), {}, open, *work_);
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_TRUE((*files)->Prepare(Take).ok());
  std::ofstream(folder_ / "k", std::ios::app) << "more";
  EXPECT_EQ(wire::ReasonOf((*files)->Commit(JobStop())), "FILE_CHANGED");
  EXPECT_EQ(wire::ReasonOf((*files)->Prepare(Take)), "FILE_CHANGED");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

}  // namespace
}  // namespace hilbert_ring::server

#include "server/worker/file_rows.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "engine/device/device.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "tests/support/test_folder.h"
#include "tests/unit/worker/run_call_rig.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kTokens = 1 << 14;
constexpr int64_t kDim = 256;  // OUT has 16 MiB, two blocks

class FileRowsTest : public ::testing::Test {
 protected:
  FileRowsTest() {
    v1::RunOpen open;
    *open.mutable_spec() =
        wire::EncodeJobSpec(PlainSpec({.tokens = kTokens, .heads = 1, .dim = kDim}));
    open.set_workers(1);
    open.add_shards()->set_end(kTokens);
    for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V, v1::TENSOR_OUT}) {
      const std::string name =
          tensor == v1::TENSOR_OUT ? ".hilbert-ring-0123-1.unfinished" : wire::TensorName(tensor);
      std::ofstream(folder_ / name).close();
      std::filesystem::resize_file(folder_ / name, kTokens * kDim * sizeof(float));
      struct stat made = {};
      EXPECT_EQ(stat((folder_ / name).c_str(), &made), 0);
      v1::ShardFile& file = *open.add_files();
      file.set_tensor(tensor);
      file.set_path(name);
      file.set_inode(made.st_ino);
      file.set_bytes(made.st_size);
    }
    work_ = *MakeAttentionRun(open);
    store_ = *ShardStore::Make(*device_, work_->plan(), 0);
    auto files = OpenRunFiles(folder_.path(), open, *work_);
    EXPECT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
    way_.emplace(files_, *work_, *store_, course_);
  }

  int64_t written() const { return course_.news().progress.bytes_written; }

  testing::TestFolder folder_;
  std::unique_ptr<Device> device_ = *MakeDevice({.threads = 1});
  std::unique_ptr<RunWork> work_;
  std::unique_ptr<ShardStore> store_;
  RunFiles files_;
  std::optional<FileWay> way_;
  run_call_rig::NotingStream stream_{{}};
  RunCourse course_{[] { return false; }};
};

TEST_F(FileRowsTest, OutputsAreWrittenAndBroughtToTheDisk) {
  RunReplies writing(stream_, course_), finishing(stream_, course_);
  EXPECT_TRUE(way_->Put(kTokens, writing, {}).ok());
  EXPECT_EQ(written(), kTokens * kDim * 4);
  EXPECT_EQ(stream_.responses(), std::vector{v1::RunResponse::kProgress});
  EXPECT_TRUE(way_->FinishOutput(finishing).ok());
  EXPECT_EQ(stream_.responses().size(), 2u);
}

TEST_F(FileRowsTest, AJobThatEndsIsNotWrittenToItsEnd) {
  RunReplies replies(stream_, course_);
  course_.Fail(absl::CancelledError("ended"));
  EXPECT_TRUE(absl::IsCancelled(way_->Put(kTokens, replies, {})));
  EXPECT_GT(written(), 0);
  EXPECT_LT(written(), kTokens * kDim * 4);
  EXPECT_TRUE(absl::IsCancelled(way_->FinishOutput(replies)));
}

}  // namespace
}  // namespace hilbert_ring::server

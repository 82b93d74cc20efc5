// A worker's part of a job's files. Whole jobs are tests/service/by_reference_test.cc's.
#include "server/worker/shard_files.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "engine/device/device.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "tests/support/test_folder.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kTokens = 1 << 14;
constexpr int64_t kDim = 256;  // OUT has 16 MiB, two blocks

class ShardFilesTest : public ::testing::Test {
 protected:
  ShardFilesTest() {
    v1::RunOpen open;
    *open.mutable_spec() =
        wire::EncodeJobSpec(PlainSpec({.tokens = kTokens, .heads = 1, .dim = kDim}));
    open.set_workers(1);
    open.add_shards()->set_end(kTokens);
    for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V, v1::TENSOR_OUT}) {
      // OUT's name is that of an output which a coordinator has made.
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
    auto files = ShardFiles::Open(folder_.path(), open, *work_);
    EXPECT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
    files_->Use(*store_);
  }

  testing::TestFolder folder_;
  std::unique_ptr<Device> device_ = *MakeDevice({.threads = 1});
  std::unique_ptr<RunWork> work_;
  std::unique_ptr<ShardStore> store_;
  std::unique_ptr<ShardFiles> files_;
};

TEST_F(ShardFilesTest, OutputsAreWrittenAndBroughtToTheDisk) {
  int moved = 0;
  const auto count = [&] {
    ++moved;
    return absl::OkStatus();
  };
  EXPECT_TRUE(files_->Write(kTokens, count).ok());
  EXPECT_EQ(files_->bytes_written(), kTokens * kDim * 4);
  EXPECT_GT(moved, 1);
  moved = 0;
  EXPECT_TRUE(files_->Sync(count).ok());
  EXPECT_GT(moved, 0);
}

TEST_F(ShardFilesTest, AJobThatEndsIsNotWrittenToItsEnd) {
  const auto ended = [] { return absl::CancelledError("the job was cancelled"); };
  EXPECT_TRUE(absl::IsCancelled(files_->Write(kTokens, ended)));
  EXPECT_GT(files_->bytes_written(), 0);
  EXPECT_LT(files_->bytes_written(), kTokens * kDim * 4);
  EXPECT_TRUE(absl::IsCancelled(files_->Sync(ended)));
}

}  // namespace
}  // namespace hilbert_ring::server

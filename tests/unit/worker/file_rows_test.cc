#include "server/worker/file_rows.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

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
  FileRowsTest() { Open(PlainSpec({.tokens = kTokens, .heads = 1, .dim = kDim}), 1); }

  // The last of the workers, with empty files.
  void Open(const JobSpec& spec, int workers) {
    v1::RunOpen open;
    *open.mutable_spec() = wire::EncodeJobSpec(spec);
    open.set_workers(workers);
    open.set_rank(workers - 1);
    for (int rank = 0; rank < workers; ++rank) {
      v1::ShardRange& shard = *open.add_shards();
      shard.set_rank(rank);
      shard.set_begin(spec.tokens * rank / workers);
      shard.set_end(spec.tokens * (rank + 1) / workers);
    }
    for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V, v1::TENSOR_OUT}) {
      const std::string name = NameOf(tensor);
      std::ofstream(folder_ / name).close();
      std::filesystem::resize_file(folder_ / name, spec.tokens * spec.head_dim * sizeof(float));
      struct stat made = {};
      EXPECT_EQ(stat((folder_ / name).c_str(), &made), 0);
      v1::ShardFile& file = *open.add_files();
      file.set_tensor(tensor);
      file.set_path(name);
      file.set_inode(made.st_ino);
      file.set_bytes(made.st_size);
    }
    work_ = *MakeAttentionRun(open);
    store_ = *ShardStore::Make(*device_, work_->plan(), workers - 1);
    auto files = OpenRunFiles(folder_.path(), open, *work_);
    EXPECT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
    way_.emplace(files_, *work_, *store_, course_);
  }

  static std::string NameOf(v1::Tensor tensor) {
    return tensor == v1::TENSOR_OUT ? ".hilbert-ring-0123-1.unfinished" : wire::TensorName(tensor);
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

std::vector<float> NumbersIn(const std::string& path) {
  std::vector<float> numbers(std::filesystem::file_size(path) / sizeof(float));
  std::ifstream(path).read(reinterpret_cast<char*>(numbers.data()),
                           static_cast<std::streamsize>(numbers.size() * sizeof(float)));
  return numbers;
}

TEST_F(FileRowsTest, ScatteredRowsComeToTheirPlacesAndOutputsToTheirTokens) {
  constexpr int64_t kMany = 1 << 16;  // several parts of the files
  constexpr int64_t kWidth = 8;       // numbers of a row
  JobSpec spec = PlainSpec({.tokens = kMany, .heads = 1, .dim = kWidth});
  spec.ordering = Ordering{.coordinate_axes = 2};
  Open(spec, 2);
  std::vector<int64_t> tokens(kMany);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::shuffle(tokens.begin(), tokens.end(), std::mt19937_64(1));
  const int64_t rows = store_->rows();
  std::copy_n(tokens.begin(), rows, store_->tokens().begin());
  const auto number = [](v1::Tensor tensor, int64_t token, int64_t i) {
    return static_cast<float>((tensor * kMany + token) * kWidth + i);
  };
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    std::vector<float> numbers(kMany * kWidth);
    std::iota(numbers.begin(), numbers.end(), number(tensor, 0, 0));
    std::ofstream(folder_ / NameOf(tensor))
        .write(reinterpret_cast<const char*>(numbers.data()), kMany * kWidth * sizeof(float));
  }
  const absl::Status read = way_->FinishInput();
  ASSERT_TRUE(read.ok()) << read;
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    for (int64_t row = 0; row < rows; ++row) {
      const auto* const there =
          reinterpret_cast<const float*>(store_->Row(*wire::TensorKindOf(tensor), row));
      ASSERT_EQ(there[0], number(tensor, tokens[row], 0)) << row;
      ASSERT_EQ(there[kWidth - 1], number(tensor, tokens[row], kWidth - 1)) << row;
    }
  }
  EXPECT_EQ(course_.news().progress.bytes_read, 3 * rows * kWidth * 4);

  std::vector<float> wanted(kMany * kWidth);
  for (int64_t row = 0; row < rows; ++row) {
    auto* const out = reinterpret_cast<float*>(store_->Row(TensorKind::kOut, row));
    const float value = row == 1 ? std::numeric_limits<float>::infinity() : 1;
    std::fill_n(out, kWidth, value);
    std::fill_n(wanted.begin() + tokens[row] * kWidth, kWidth, value);
  }
  RunReplies replies(stream_, course_);
  ASSERT_TRUE(way_->Put(rows / 2, replies, {}).ok());
  ASSERT_TRUE(way_->Put(rows, replies, {}).ok());
  ASSERT_TRUE(way_->Put(rows, replies, {}).ok());
  EXPECT_EQ(NumbersIn(folder_ / NameOf(v1::TENSOR_OUT)), wanted);
  EXPECT_EQ(written(), rows * kWidth * 4);
  EXPECT_EQ(course_.news().progress.first_not_finite, tokens[1]);
}

}  // namespace
}  // namespace hilbert_ring::server

#include "client/cli/raw_rows.h"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRowBytes = 48;  // of q, k and v together

std::string Rows(int64_t rows, char filled) {
  return std::string(static_cast<size_t>(rows * kRowBytes), filled);
}

// A single file of all three tensors. The stream ends after 5 s without rows, so that a test fails
// instead of hanging.
class RawRowsTest : public ::testing::Test {
 protected:
  void Open(bool follow) {
    const JobSpec spec = PlainSpec({.tokens = 8, .heads = 1, .dim = 4});
    auto opened = RawRows::Open({.q = "", .k = "", .v = "", .qkv = path_, .follow = follow}, spec,
                                [this] { return stopped_ || Clock::now() > limit_; });
    ASSERT_TRUE(opened.ok()) << opened.status();
    rows_.emplace(*std::move(opened));
  }
  void Append(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::app) << bytes;
  }
  int64_t Next() {
    const auto block = rows_->Next(std::stop_token());
    EXPECT_TRUE(block.ok()) << block.status();
    return block.ok() && block->has_value() ? (*block)->rows : 0;
  }
  // Returns the DATA_LOSS message, or the rows that came instead.
  std::string NextError() {
    const auto block = rows_->Next(std::stop_token());
    if (block.ok()) {
      return block->has_value() ? absl::StrCat((*block)->rows, " rows") : "no rows";
    }
    EXPECT_TRUE(absl::IsDataLoss(block.status())) << block.status();
    return std::string(block.status().message());
  }

  const client::TestFiles files_;
  const std::string path_ = files_.Path("qkv.raw");
  const Clock::time_point limit_ = Clock::now() + std::chrono::seconds(5);
  bool stopped_ = false;
  std::optional<RawRows> rows_;
};

TEST_F(RawRowsTest, AFileThatGrowsIsFollowed) {
  Append(Rows(2, 'a'));
  Open(true);
  EXPECT_EQ(Next(), 2);
  Append(Rows(3, 'b'));
  EXPECT_EQ(Next(), 3);
  std::filesystem::remove(path_);  // its writer may still have it open
  stopped_ = true;
  EXPECT_EQ(Next(), 0);
}

TEST_F(RawRowsTest, APipeEndsWithItsWriterFollowedOrNot) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  for (const bool follow : {false, true}) {
    Open(follow);
    Append(Rows(2, 'a'));  // opens and closes the pipe
    EXPECT_EQ(Next(), 2);
    EXPECT_EQ(Next(), 0);
    EXPECT_LT(Clock::now(), limit_) << "the pipe was followed";
  }
}

TEST_F(RawRowsTest, AFileThatBecomesShorterIsAnError) {
  Append(Rows(4, 'a'));
  Open(true);
  EXPECT_EQ(Next(), 4);
  std::filesystem::resize_file(path_, kRowBytes);
  EXPECT_EQ(NextError(), absl::StrCat(path_, " was shortened, from 192 to 48 bytes"));
}

// The new file is longer than the part already read.
TEST_F(RawRowsTest, AFileThatWasEmptiedAndWrittenAnewIsAnError) {
  Append(Rows(70'000, 'a'));
  Open(true);
  const int64_t read = Next();
  ASSERT_LT(read, 69'000);
  std::filesystem::resize_file(path_, 0);
  Append(Rows(69'000, 'b'));
  EXPECT_EQ(NextError(), absl::StrCat(path_, " was shortened, from ", 70'000 * kRowBytes, " to ",
                                      69'000 * kRowBytes, " bytes"));
}

TEST_F(RawRowsTest, AFileInAnothersPlaceIsAnErrorOnceTheFirstIsReadToItsEnd) {
  Append(Rows(4, 'a'));
  Open(true);
  EXPECT_EQ(Next(), 4);
  Append(Rows(2, 'a'));
  std::filesystem::rename(path_, path_ + ".1");
  Append(Rows(1, 'b'));
  EXPECT_EQ(Next(), 2);
  EXPECT_EQ(NextError(), absl::StrCat(path_, " was replaced by another file, which is not read"));
}

}  // namespace
}  // namespace hilbert_ring::cli

#include "server/process/regular_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

class RegularFile : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  static std::string MessageFor(const std::string& path) {
    const auto text = ReadRegularFile(path, 10);
    EXPECT_FALSE(text.ok()) << *text;
    return std::string(text.status().message());
  }

  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "regular_file_", getpid(), "_",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(RegularFile, IsReadUpToItsBound) {
  for (const std::string& text : {std::string(), std::string("1\0003", 3), std::string(10, 'x')}) {
    std::ofstream(path_, std::ios::binary) << text;
    const auto read = ReadRegularFile(path_, 10);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, text);
  }
  std::ofstream(path_) << std::string(11, 'x');
  EXPECT_EQ(MessageFor(path_), "has more than 10 bytes");
  // The system reports no size for it.
  EXPECT_EQ(MessageFor("/proc/self/status"), "has more than 10 bytes");
  EXPECT_TRUE(absl::IsNotFound(ReadRegularFile("/no/such/file", 10).status()));
}

TEST_F(RegularFile, OtherFilesAreNeitherReadNorAwaited) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(MessageFor(path_), "must be a regular file, is a FIFO");
  for (const char* device : {"/dev/zero", "/dev/null"}) {
    EXPECT_EQ(MessageFor(device), "must be a regular file, is a device");
  }
  EXPECT_EQ(MessageFor("/"), "must be a regular file, is a folder");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(MessageFor(absl::StrCat("/proc/self/fd/", ends[0])),
            "must be a regular file, is a FIFO");
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace hilbert_ring::server

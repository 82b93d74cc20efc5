#include "client/cpp/file_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

constexpr int64_t kBytes = 1 << 18;

class FileMappings : public ::testing::Test {
 protected:
  FileMappings() : fd_(open(files_.Write("f", std::string(kBytes, 'x')).c_str(), O_RDWR)) {}
  ~FileMappings() override { close(fd_); }

  std::unique_ptr<FileMapping> Map(int protection = PROT_READ) const {
    return FileMapping::Map(fd_, kBytes, protection).value();
  }

  const TestFiles files_;
  const int fd_;
};

// In processes of their own, because a SIGBUS handler is the process's.
using FileMappingsDeathTest = FileMappings;

TEST_F(FileMappingsDeathTest, LostBytesReadAsZeroAndAreTold) {
  EXPECT_EXIT(
      {
        CatchLostBytes();
        const auto mapping = Map();
        if (!mapping->Intact() || ftruncate(fd_, 100'000) != 0) _exit(1);
        // Bytes before the new end are intact.
        if (static_cast<char>(mapping->begin()[99'999]) != 'x') _exit(2);
        for (int64_t byte = 200'000; byte < kBytes; ++byte) {
          if (static_cast<char>(mapping->begin()[byte]) != 0) _exit(3);
        }
        _exit(mapping->Intact() ? 4 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(FileMappingsDeathTest, BytesWrittenBehindTheEndAreTold) {
  EXPECT_EXIT(
      {
        CatchLostBytes();
        const auto mapping = Map(PROT_READ | PROT_WRITE);
        if (ftruncate(fd_, 0) != 0) _exit(1);
        std::memset(mapping->begin(), 'y', static_cast<size_t>(kBytes));
        // The file has its size again, but its bytes are lost.
        if (ftruncate(fd_, kBytes) != 0) _exit(2);
        _exit(mapping->Intact() ? 3 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(FileMappingsDeathTest, OtherBusErrorsEndTheProcess) {
  const auto read_behind_the_end = [this] {
    const auto watched = Map();
    if (ftruncate(fd_, 0) != 0) return;
    const auto* other =
        static_cast<const char*>(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd_, 0));
    volatile char lost = *other;
    (void)lost;
  };
  EXPECT_EXIT(
      {
        CatchLostBytes();
        read_behind_the_end();
        _exit(0);
      },
      ::testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(
      {
        CatchLostBytes();
        raise(SIGBUS);
        _exit(0);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(FileMappings, AShorterFileIsToldThoughNoByteWasUsed) {
  const auto mapping = Map();
  EXPECT_TRUE(mapping->Intact());
  ASSERT_EQ(ftruncate(fd_, kBytes - 1), 0);
  EXPECT_FALSE(mapping->Intact());
}

}  // namespace
}  // namespace hilbert_ring::client

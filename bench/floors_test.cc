// What reference_bench holds a job against: files whose pages are dropped, and the loopback's
// socket.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "bench/loopback.h"
#include "bench/page_cache.h"
#include "gtest/gtest.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::bench {
namespace {

constexpr int64_t kBytes = 4 << 20;

class PageCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (LiesInMemory(folder_.path())) GTEST_SKIP() << folder_.path() << " has no disk";
    std::ofstream(path_) << std::string(kBytes, 'x');
  }

  const testing::TestFolder folder_;
  const std::string path_ = folder_ / "file";
};

TEST_F(PageCacheTest, PagesAreDroppedAndComeBackWhereTheFileIsRead) {
  EXPECT_EQ(BytesInMemory(path_).value_or(-1), kBytes);
  const absl::Status dropped = DropPages(path_);
  ASSERT_TRUE(dropped.ok()) << dropped;
  EXPECT_EQ(BytesInMemory(path_).value_or(-1), 0);
  EXPECT_EQ(testing::FileText(path_), std::string(kBytes, 'x'));
  EXPECT_EQ(BytesInMemory(path_).value_or(-1), kBytes);
}

TEST_F(PageCacheTest, PagesThatSomebodyHasMappedStayAndItIsSaid) {
  const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  void* const mapped = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_TRUE(absl::IsFailedPrecondition(DropPages(path_))) << DropPages(path_);
  munmap(mapped, kBytes);
  close(file);
}

TEST_F(PageCacheTest, AFileThatIsNotThereIsAnError) {
  EXPECT_TRUE(absl::IsNotFound(DropPages(folder_ / "none")));
  EXPECT_TRUE(absl::IsNotFound(BytesInMemory(folder_ / "none").status()));
}

TEST(PageCacheInMemory, HasNothingToDrop) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm";
  ASSERT_TRUE(LiesInMemory("/dev/shm"));
  EXPECT_FALSE(LiesInMemory("/proc"));
  const std::string path = "/dev/shm/hilbert-ring-floors-test-" + std::to_string(getpid());
  std::ofstream(path) << std::string(kBytes, 'x');
  EXPECT_TRUE(absl::IsFailedPrecondition(DropPages(path)));
  unlink(path.c_str());
}

// What comes is counted until the other side has ended.
TEST(Loopback, CarriesBothWaysOneWayAndNothing) {
  for (const auto& [there, back] :
       {std::pair<int64_t, int64_t>{(5 << 20) + 3, (3 << 20) + 1}, {1 << 20, 0}, {0, 7}, {0, 0}}) {
    const absl::Status carried = CarryOverLoopback(there, back);
    EXPECT_TRUE(carried.ok()) << there << " " << back << " " << carried;
  }
}

}  // namespace
}  // namespace hilbert_ring::bench

#include "server/files/mark_watch.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <semaphore>

#include "gtest/gtest.h"
#include "server/files/data_root.h"
#include "tests/support/await.h"
#include "tests/support/hung_folder.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kLimit{20};

class MarkWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_ / "root");
    auto root = DataRoot::Open(folder_ / "root");
    ASSERT_TRUE(root.ok()) << root.status();
    root_ = *std::move(root);
  }
  void CountChanges(MarkWatch& watch) {
    watch.SetOnChange([this] { changes_.release(); });
  }
  bool AwaitChange() { return changes_.try_acquire_for(kLimit); }

  const testing::TestFolder folder_;
  std::unique_ptr<DataRoot> root_;
  std::counting_semaphore<> changes_{0};
};

TEST_F(MarkWatchTest, ANamedMarkIsLookedForAtOnce) {
  MarkWatch watch(folder_ / "root", hours(1));
  CountChanges(watch);
  EXPECT_EQ(watch.mark(), "");
  watch.Look(root_->mark_file());
  ASSERT_TRUE(AwaitChange());
  EXPECT_EQ(watch.mark(), root_->mark());
}

TEST_F(MarkWatchTest, AFolderThatGoesAndComesBackIsSeen) {
  MarkWatch watch(folder_ / "root", milliseconds(1));
  CountChanges(watch);
  watch.Look(root_->mark_file());
  ASSERT_TRUE(AwaitChange());
  std::filesystem::rename(folder_ / "root", folder_ / "moved");
  ASSERT_TRUE(AwaitChange());
  EXPECT_EQ(watch.mark(), "");
  std::filesystem::rename(folder_ / "moved", folder_ / "root");
  ASSERT_TRUE(AwaitChange());
  EXPECT_EQ(watch.mark(), root_->mark());
}

TEST_F(MarkWatchTest, AnUnchangedMarkIsReportedOnce) {
  MarkWatch watch(folder_ / "root", milliseconds(1));
  CountChanges(watch);
  watch.Look(root_->mark_file());
  ASSERT_TRUE(AwaitChange());
  EXPECT_FALSE(changes_.try_acquire_for(milliseconds(50))) << "fifty looks found the same";
}

TEST_F(MarkWatchTest, NoMarkIsSeenWhileALookGetsNoAnswer) {
  // This first Mount gives the thread its own mounts, which the watch's thread inherits.
  if (const auto probe = testing::HungFolder::Mount(folder_ / "root"); !probe.ok()) {
    GTEST_SKIP() << probe.status();
  }
  MarkWatch watch(folder_ / "root", milliseconds(1), milliseconds(100));
  watch.Look(root_->mark_file());
  ASSERT_TRUE(testing::Await([&] { return watch.mark() == root_->mark(); }));
  auto hung = testing::HungFolder::Mount(folder_ / "root");
  ASSERT_TRUE(hung.ok()) << hung.status();
  EXPECT_TRUE(testing::Await([&] { return watch.mark().empty(); }));
  hung->reset();
  EXPECT_TRUE(testing::Await([&] { return watch.mark() == root_->mark(); }));
}

}  // namespace
}  // namespace hilbert_ring::server

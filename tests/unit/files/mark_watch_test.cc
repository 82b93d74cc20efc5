#include "server/files/mark_watch.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "server/files/data_root.h"
#include "tests/support/hung_folder.h"
#include "tests/support/own_mounts.h"
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
  // Whoever is told of a change.
  void Tell(MarkWatch& watch) {
    watch.SetOnChange([this] { told_.release(); });
  }
  bool AwaitTold() { return told_.try_acquire_for(kLimit); }

  const testing::TestFolder folder_;
  std::unique_ptr<DataRoot> root_;
  std::counting_semaphore<> told_{0};
};

TEST_F(MarkWatchTest, AMarkThatIsNamedIsLookedForAtOnce) {
  MarkWatch watch(folder_ / "root", hours(1));
  Tell(watch);
  EXPECT_EQ(watch.mark(), "");
  watch.Look(root_->mark_file());
  ASSERT_TRUE(AwaitTold());
  EXPECT_EQ(watch.mark(), root_->mark());
}

TEST_F(MarkWatchTest, AFolderThatGoesAndComesBackIsSeen) {
  MarkWatch watch(folder_ / "root", milliseconds(1));
  Tell(watch);
  watch.Look(root_->mark_file());
  ASSERT_TRUE(AwaitTold());
  std::filesystem::rename(folder_ / "root", folder_ / "moved");
  ASSERT_TRUE(AwaitTold());
  EXPECT_EQ(watch.mark(), "");
  std::filesystem::rename(folder_ / "moved", folder_ / "root");
  ASSERT_TRUE(AwaitTold());
  EXPECT_EQ(watch.mark(), root_->mark());
}

TEST_F(MarkWatchTest, WhatIsAsItWasIsNotToldAgain) {
  MarkWatch watch(folder_ / "root", milliseconds(1));
  Tell(watch);
  watch.Look(root_->mark_file());
  ASSERT_TRUE(AwaitTold());
  EXPECT_FALSE(told_.try_acquire_for(milliseconds(50))) << "fifty looks found the same";
}

TEST_F(MarkWatchTest, AFolderThatDoesNotAnswerIsAsGoodAsGone) {
  const absl::Status own = testing::EnterOwnMounts();  // before there is the watch's thread
  if (!own.ok()) GTEST_SKIP() << own;
  MarkWatch watch(folder_ / "root", milliseconds(1), milliseconds(200));
  Tell(watch);
  watch.Look(root_->mark_file());
  ASSERT_TRUE(AwaitTold());
  ASSERT_EQ(watch.mark(), root_->mark());
  {
    const auto hung = testing::HungFolder::Mount(folder_ / "root");
    if (!hung.ok()) GTEST_SKIP() << hung.status();
    ASSERT_TRUE(AwaitTold());
    EXPECT_EQ(watch.mark(), "");
  }
  ASSERT_TRUE(AwaitTold());
  EXPECT_EQ(watch.mark(), root_->mark());
}

TEST_F(MarkWatchTest, EndsInTheMidstOfALook) {
  const auto hung = testing::HungFolder::Mount(folder_ / "root");
  if (!hung.ok()) GTEST_SKIP() << hung.status();
  std::optional<MarkWatch> watch;
  watch.emplace(folder_ / "root", milliseconds(1), hours(1));
  watch->Look(root_->mark_file());
  std::this_thread::sleep_for(milliseconds(50));
  watch.reset();
}

TEST_F(MarkWatchTest, WithoutARootNothingIsSeen) {
  MarkWatch watch("", milliseconds(1));
  Tell(watch);
  watch.Look(root_->mark_file());
  EXPECT_FALSE(told_.try_acquire_for(milliseconds(20)));
  EXPECT_EQ(watch.mark(), "");
}

}  // namespace
}  // namespace hilbert_ring::server

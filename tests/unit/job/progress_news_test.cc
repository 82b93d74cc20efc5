#include "server/job/progress_news.h"

#include <chrono>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

using Does = ProgressNews::Does;
using std::chrono::minutes;
using std::chrono::seconds;

const Clock::time_point kBegun = Clock::time_point() + std::chrono::hours(1);

struct Replies {
  double fraction = 0;
  int64_t step = 0, layer = 0, file_bytes = 0;
};

v1::RunProgress Progress(const Replies& replies) {
  v1::RunProgress progress;
  progress.set_fraction(replies.fraction);
  progress.set_waiting_step(replies.step);
  progress.set_layer(replies.layer);
  progress.set_file_bytes(replies.file_bytes);
  return progress;
}

ProgressNews OfMessages() { return ProgressNews(std::nullopt); }

TEST(ProgressNews, AComputingWorkerMovesWhenItComesFurther) {
  ProgressNews news = OfMessages();
  const auto moves = [&](const Replies& replies) {
    return news.Moves(Progress(replies), Does::kComputes, kBegun);
  };
  EXPECT_TRUE(moves({.fraction = 0.5}));
  EXPECT_FALSE(moves({.fraction = 0.5}));
  EXPECT_FALSE(moves({.fraction = 0.25}));
  EXPECT_FALSE(moves({.fraction = 0.5})) << "it was there before";
  EXPECT_TRUE(moves({.fraction = 0.6}));
  EXPECT_TRUE(moves({.layer = 2}));
  EXPECT_FALSE(moves({.layer = 1}));
  EXPECT_TRUE(moves({.step = 1})) << "each layer has the steps of the exchange again";
  EXPECT_TRUE(moves({.step = 0}));
  EXPECT_EQ(news.furthest().fraction(), 0.6);
  EXPECT_EQ(news.furthest().layer(), 2);
}

TEST(ProgressNews, AWorkerThatHasComputedDoesNotMoveByProgress) {
  ProgressNews news = OfMessages();
  EXPECT_FALSE(news.Moves(Progress({.fraction = 0.5, .step = 3, .layer = 1, .file_bytes = 7}),
                          Does::kHandsOver, kBegun));
}

TEST(ProgressNews, AWorkerWithFilesMayRepeatProgressForTheDisksTime) {
  for (const Does does : {Does::kReads, Does::kHandsOver}) {
    ProgressNews news(60'000'000'000);  // 100 minutes at 10 MB/s
    news.Begin(kBegun);
    const auto moves_at = [&](Clock::duration after, int64_t bytes) {
      return news.Moves(Progress({.fraction = 0.5, .file_bytes = bytes}), does, kBegun + after);
    };
    EXPECT_TRUE(moves_at(minutes(109), 0));
    EXPECT_TRUE(moves_at(minutes(109), 1));
    EXPECT_TRUE(moves_at(minutes(218), 1));
    EXPECT_FALSE(moves_at(minutes(219), 1));
    EXPECT_FALSE(moves_at(minutes(219) + seconds(1), 0));
    EXPECT_TRUE(moves_at(minutes(300), 2));
    news.Begin(kBegun + minutes(500));
    EXPECT_TRUE(moves_at(minutes(501), 2)) << "another wait";
  }
}

TEST(ProgressNews, ProgressOfComputeCountsWhileItComputes) {
  ProgressNews news(0);
  news.Begin(kBegun);
  const Clock::time_point later = kBegun + minutes(11);
  EXPECT_TRUE(news.Moves(Progress({.fraction = 0.5}), Does::kComputes, later));
  EXPECT_FALSE(news.Moves(Progress({.fraction = 0.6}), Does::kReads, later));
  EXPECT_FALSE(news.Moves(Progress({.fraction = 0.7, .step = 1}), Does::kHandsOver, later));
}

}  // namespace
}  // namespace hilbert_ring::server

#include "server/process/shared_page.h"

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/manual_time.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;
using testing::Eventually;
using testing::ManualTime;

class SharedPageTest : public ::testing::Test {
 protected:
  ManualTime time_;
  milliseconds takes_{0};
  std::atomic<int> made_ = 0;
  SharedPage page_{[this] {
                     time_.Advance(takes_);
                     return HttpReply{.body = std::to_string(++made_)};
                   },
                   time_, [this] { return time_.Now().time_since_epoch(); }};
};

TEST_F(SharedPageTest, OneThatIsMadeAtOnceIsAlwaysNew) {
  EXPECT_EQ(*page_.Get().shared, "1");
  EXPECT_EQ(*page_.Get().shared, "2");
}

TEST_F(SharedPageTest, OneThatTakesLongIsMadeNowAndThen) {
  takes_ = milliseconds(20);
  const HttpReply first = page_.Get();
  time_.Advance(milliseconds(199));
  EXPECT_EQ(page_.Get().shared, first.shared);  // the same memory
  time_.Advance(milliseconds(1));
  EXPECT_EQ(*page_.Get().shared, "2");
  takes_ = milliseconds(1000);
  time_.Advance(milliseconds(200));
  EXPECT_EQ(*page_.Get().shared, "3");
  time_.Advance(milliseconds(249));
  EXPECT_EQ(*page_.Get().shared, "3");
  time_.Advance(milliseconds(1));
  EXPECT_EQ(*page_.Get().shared, "4");
}

TEST(SharedPage, OfManyWhoAskAtOnceOneMakesIt) {
  ManualTime time;
  std::atomic<int> made = 0;
  std::latch go(1);
  SharedPage page(
      [&] {
        ++made;
        go.wait();
        time.Advance(std::chrono::seconds(1));
        return HttpReply{.status = 200, .content_type = "x", .body = "page"};
      },
      time, [&time] { return time.Now().time_since_epoch(); });
  std::vector<std::future<HttpReply>> replies;
  replies.reserve(8);
  for (int i = 0; i < 8; ++i) {
    replies.push_back(std::async(std::launch::async, [&] { return page.Get(); }));
  }
  ASSERT_TRUE(Eventually([&] { return made == 1; }));
  go.count_down();
  const HttpReply first = replies.front().get();
  EXPECT_EQ(first.content_type, "x");
  for (auto& reply : replies) {
    if (reply.valid()) {
      EXPECT_EQ(reply.get().shared, first.shared);
    }
  }
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace hilbert_ring::server

#include "server/job/peer_complaints.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

// Workers a to e: "a>b" is a's complaint of b, "a>b!" of corrupt blocks, "a" of nobody.
class PeerComplaintsTest : public ::testing::Test {
 protected:
  std::shared_ptr<Member> Worker(char name) const { return workers_.at(name - 'a'); }

  // Whom the job leaves out after executions that ended by these; empty: nobody.
  std::string Culprit(const std::vector<std::string>& heard, bool slow = false) {
    Complaints complaints{.heard = {}, .slow = slow};
    for (const std::string& one : heard) {
      complaints.heard.push_back({.by = Worker(one[0]),
                                  .of = one.size() > 1 ? Worker(one[2]) : nullptr,
                                  .corrupt = one.ends_with('!')});
    }
    const auto culprit = complaints_.Culprit(complaints);
    return culprit == nullptr ? "" : culprit->address;
  }

  PeerComplaints complaints_;

 private:
  static std::shared_ptr<Member> Make(const char* name) {
    auto worker = std::make_shared<Member>();
    worker->address = name;
    return worker;
  }
  const std::array<std::shared_ptr<Member>, 5> workers_ = {Make("a"), Make("b"), Make("c"),
                                                           Make("d"), Make("e")};
};

TEST_F(PeerComplaintsTest, OnceMayBeAMoments) {
  EXPECT_EQ(Culprit({"a>b"}), "");
  EXPECT_EQ(Culprit({}), "") << "something else ended it";
  EXPECT_EQ(Culprit({"a>b"}), "");
  EXPECT_EQ(Culprit({"a>b"}), "b");
}

TEST_F(PeerComplaintsTest, WhereEachTryIsSlowOnceWillDo) { EXPECT_EQ(Culprit({"a>b"}, true), "b"); }

TEST_F(PeerComplaintsTest, TheSenderOfCorruptBlocksIsLeftOutNotWhoFindsThem) {
  EXPECT_EQ(Culprit({"b>a!"}), "");
  EXPECT_EQ(Culprit({"b>a!"}), "a");
}

// By which its ring ends, so that the others miss it.
TEST_F(PeerComplaintsTest, WhoFindsCorruptBlocksIsNotToBlameForWhatFollows) {
  Culprit({"c>b", "d>b", "b>a!"});
  EXPECT_EQ(Culprit({"c>b", "b>a!", "d>b"}), "a");
}

TEST_F(PeerComplaintsTest, WhoSpeaksOfOneAfterTheOtherIsLeftOutItself) {
  Culprit({"a>b!"});
  EXPECT_EQ(Culprit({"a>b!"}), "b");
  EXPECT_EQ(Culprit({"a>c!"}), "a");
}

TEST_F(PeerComplaintsTest, OneOfWhomSeveralSpeakIsLeftOut) {
  Culprit({"a>b", "c>b"});
  EXPECT_EQ(Culprit({"b>a", "c>b"}), "b");
}

TEST_F(PeerComplaintsTest, OfTwoThatDoNotReachEachOtherOneIsLeftOut) {
  Culprit({"a>b", "b>a"});
  EXPECT_EQ(Culprit({"a>b", "b>a"}), "b");
}

// It has no fault but to need both.
TEST_F(PeerComplaintsTest, AThirdThatTheEndsOfTheirRingsReachIsNot) {
  Culprit({"c>a", "a>b", "b>a"});
  const std::string culprit = Culprit({"c>b", "b>a", "a>b"});
  EXPECT_TRUE(culprit == "a" || culprit == "b") << culprit;
}

TEST_F(PeerComplaintsTest, WhoAloneSpeaksOfNobodyTwiceMeansItself) {
  Culprit({"a"});
  EXPECT_EQ(Culprit({"b"}), "") << "another";
  EXPECT_EQ(Culprit({"b", "a"}), "") << "more than one";
  EXPECT_EQ(Culprit({"a"}), "");
  EXPECT_EQ(Culprit({"a"}), "a");
}

TEST_F(PeerComplaintsTest, WhoHasLeftIsNoMatterAnyMore) {
  Culprit({"a>b"});
  Worker('b')->departed.request_stop();
  EXPECT_EQ(Culprit({"a>b"}), "");
  EXPECT_EQ(Culprit({"a>c"}), "");
  EXPECT_EQ(Culprit({"a>c"}), "a") << "of two by now";
}

}  // namespace
}  // namespace hilbert_ring::server

#include "server/many/packed_jobs.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/many/small_jobs.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::hilbert_ring::testing::SmallJobOf;
using ::testing::ElementsAre;

JobSpec Spec(int64_t tokens) { return PlainSpec({.tokens = tokens, .segment = 32}); }

// Numbers of the jobs that are computed together.
std::vector<std::vector<int64_t>> Numbers(const v1::AttendManyRequest& request, int64_t first = 0) {
  std::vector<std::vector<int64_t>> numbers;
  for (const PackedJobs& jobs : Pack(request, first)) {
    auto& of = numbers.emplace_back();
    for (int64_t i = 0; i < jobs.size(); ++i) of.push_back(jobs.number(i));
  }
  return numbers;
}

TEST(PackedJobs, AreThoseThatAreAlikeButForTheirTokens) {
  v1::AttendManyRequest request;
  *request.add_jobs() = SmallJobOf(Spec(10));
  *request.add_jobs() = SmallJobOf(Spec(20));
  request.mutable_jobs(1)->mutable_open()->set_can_resend(true);  // says nothing
  *request.add_jobs() = SmallJobOf(Spec(30));
  request.mutable_jobs(2)->mutable_open()->mutable_spec()->set_causal(true);
  *request.add_jobs() = SmallJobOf(Spec(40));
  EXPECT_THAT(Numbers(request, 5), ElementsAre(ElementsAre(5, 6, 8), ElementsAre(7)));
  const v1::Open open = Pack(request, 5)[0].open();
  EXPECT_EQ(open.spec().tokens(), 70);
  EXPECT_THAT(open.spec().sequence_lengths(), ElementsAre(10, 20, 40));
  EXPECT_FALSE(open.can_resend());
}

TEST(PackedJobs, KeepTheirSequences) {
  v1::AttendManyRequest request;
  for (const int64_t tokens : {10, 20}) *request.add_jobs() = SmallJobOf(Spec(tokens));
  for (const int64_t length : {3, 7}) {
    request.mutable_jobs(0)->mutable_open()->mutable_spec()->add_sequence_lengths(length);
  }
  ASSERT_THAT(Numbers(request), ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(Pack(request, 0)[0].open().spec().sequence_lengths(), ElementsAre(3, 7, 20));
}

// One of two that are alike but for one thing, which is why neither is computed with the other.
TEST(PackedJobs, AreNotThoseWithSomethingOfTheirOwn) {
  const auto apart = [](const auto& change) {
    v1::AttendManyRequest request;
    for (int i = 0; i < 2; ++i) {
      *request.add_jobs() = SmallJobOf(Spec(10));
      change(*request.mutable_jobs(i)->mutable_open());
    }
    return Numbers(request).size() == 2;
  };
  EXPECT_FALSE(apart([](v1::Open&) {}));
  EXPECT_TRUE(apart([](v1::Open& open) { open.set_job_id("mine"); }));
  EXPECT_TRUE(apart([](v1::Open& open) { open.set_attempt(1); }));
  EXPECT_TRUE(apart([](v1::Open& open) { open.set_want_trace(true); }));
  EXPECT_TRUE(apart([](v1::Open& open) { open.set_epoch_tokens(32); }));
  EXPECT_TRUE(apart([](v1::Open& open) { open.add_files(); }));
  EXPECT_TRUE(apart([](v1::Open& open) { open.clear_spec(); }));
  EXPECT_TRUE(apart([](v1::Open& open) { open.mutable_spec()->set_tokens(0); }));
  EXPECT_TRUE(apart([](v1::Open& open) { open.mutable_spec()->add_sequence_lengths(9); }));
  EXPECT_TRUE(apart([](v1::Open& open) {
    open.mutable_spec()->add_sequence_lengths(-1);
    open.mutable_spec()->add_sequence_lengths(11);
  }));
  EXPECT_TRUE(apart(
      [](v1::Open& open) { open.mutable_spec()->mutable_ordering()->set_coordinate_axes(2); }));
}

TEST(PackedJobs, HaveOutputsOfOneMessage) {
  v1::AttendManyRequest request;
  const JobSpec spec = PlainSpec({.tokens = 1000, .heads = 4, .dim = 256});  // 4,000 KiB
  for (int i = 0; i < 2; ++i) *request.add_jobs() = SmallJobOf(Spec(1));
  for (v1::SmallJob& job : *request.mutable_jobs()) {
    *job.mutable_open()->mutable_spec() = wire::EncodeJobSpec(spec);
  }
  EXPECT_THAT(Numbers(request), ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_EQ(Pack(request, 0)[0].output_bytes(), 1000 * 4 * 256 * 4);
  for (v1::SmallJob& job : *request.mutable_jobs())
    job.mutable_open()->mutable_spec()->set_tokens(450);
  EXPECT_THAT(Numbers(request), ElementsAre(ElementsAre(0, 1)));
  for (v1::SmallJob& job : *request.mutable_jobs()) {
    job.mutable_open()->mutable_spec()->set_heads(int64_t{1} << 62);
  }
  EXPECT_THAT(Numbers(request), ElementsAre(ElementsAre(0), ElementsAre(1)));
}

// Else they would be another's.
TEST(PackedJobs, HaveNoRowsOfOthers) {
  const auto reason = [](int64_t first, int64_t rows, int jobs) {
    v1::AttendManyRequest request;
    for (int i = 0; i < jobs; ++i) *request.add_jobs() = SmallJobOf(Spec(10));
    request.mutable_jobs(0)->mutable_rows(1)->set_first_row(first);
    request.mutable_jobs(0)->mutable_rows(1)->set_rows(rows);
    return wire::ReasonOf(Pack(request, 0)[0].Check());
  };
  EXPECT_EQ(reason(0, 10, 2), "OK");
  EXPECT_EQ(reason(1, 10, 2), "CHUNK_MISSHAPEN");
  EXPECT_EQ(reason(0, 11, 2), "CHUNK_MISSHAPEN");
  EXPECT_EQ(reason(-1, 1, 2), "CHUNK_MISSHAPEN");
  EXPECT_EQ(reason(0, -1, 2), "CHUNK_MISSHAPEN");
  EXPECT_EQ(reason(1, 10, 1), "OK");  // alone: the job says it
}

}  // namespace
}  // namespace hilbert_ring::server

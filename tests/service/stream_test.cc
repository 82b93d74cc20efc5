#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/expected_rows.h"
#include "tests/service/stream_call.h"
#include "tests/support/plain_spec.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

struct Case {
  std::string name;
  JobSpec job;
  std::vector<int64_t> sequence_lengths;  // of the stream; they repeat
  int64_t epoch_tokens = 0;
};

JobSpec Job(int64_t tokens, std::vector<Branch> branches) {
  JobSpec spec = PlainSpec({.tokens = tokens, .heads = 4, .dim = 16});
  spec.branches = std::move(branches);
  return spec;
}

// No epoch divides the 700 tokens: the last epoch ends within segments.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto add = [&cases](const std::string& name, int64_t epoch_tokens, auto change) {
    Case one{name, Job(700, {{32, 1}, {64, 2}, {96, 3}}), {}, epoch_tokens};
    change(one);
    cases.push_back(std::move(one));
  };
  add("plain", 192, [](Case&) {});
  add("whole", 0, [](Case&) {});  // one epoch
  add("ends_with_an_epoch", 192, [](Case& one) { one.job.tokens = 576; });
  add("causal", 192, [](Case& one) { one.job.causal = true; });
  add("lse_mixing", 192, [](Case& one) { one.job.mixing = Mixing::kLse; });
  add("zero_tail", 192, [](Case& one) {
    one.job.mixing = Mixing::kLse;
    one.job.tail = Tail::kZero;
  });
  add("zero_tail_short", 192, [](Case& one) {
    one.job.tail = Tail::kZero;
    one.job.tokens = 2 * 192 + 20;  // the rest is less than a segment
  });
  add("kv_heads", 192, [](Case& one) {
    one.job.kv_heads = 2;
    one.job.dtype = DataType::kBFloat16;
  });
  add("window", 192, [](Case& one) { one.job.ordering.emplace().window = 64; });
  add("window_of_keys", 192, [](Case& one) {
    one.job.ordering.emplace().window = 32;
    one.job.ordering->scope = OrderScope::kKv;
    one.job.causal = true;
  });
  add("scores", 192, [](Case& one) {
    one.job.branches = {{32, 1}, {64, 1}, {96, 1}};
    one.job.window = Window{.left = 40, .right = 3};
    one.job.softcap = 2;
    one.job.alibi = Alibi{std::vector<double>(one.job.heads, 0.125)};
    one.job.sinks.assign(one.job.heads, 1.5);
  });
  // Each segment lies on one worker at any cut.
  add("local", 256, [](Case& one) { one.job.branches = {{4, 1}, {8, 2}}; });
  add("packed", 120, [](Case& one) {
    one.sequence_lengths = {50, 70};
    one.job.tail = Tail::kZero;
    for (int64_t left = 700, i = 0; left > 0; ++i) {
      one.job.sequence_lengths.push_back(std::min(left, one.sequence_lengths[i % 2]));
      left -= one.job.sequence_lengths.back();
    }
  });
  return cases;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class Streams : public ::testing::TestWithParam<int> {};

TEST_P(Streams, AreTheRowsOfOneJob) {
  const auto cluster = Cluster::Start({.workers = GetParam()}).value();
  auto stub = cluster->Stub();
  int alike = 0;
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.name);
    const EngineInputs inputs = RandomInputs(one.job, 7);
    const auto whole = AttendRaw(*stub, one.job, inputs, 64, 1);
    ASSERT_TRUE(whole.ok()) << whole.status();
    int64_t epochs = 0, tokens = 0;
    const auto streamed =
        AttendInStream(*cluster, one.job, StreamOf(one.job, one.sequence_lengths), inputs,
                       {.epoch_tokens = one.epoch_tokens, .epoch = [&](const v1::Epoch& epoch) {
                          EXPECT_EQ(epoch.first_token(), tokens);
                          tokens += epoch.report().tokens();
                          ++epochs;
                        }});
    ASSERT_TRUE(streamed.ok()) << streamed.status();
    EXPECT_EQ(tokens, one.job.tokens);
    EXPECT_EQ(streamed->report.tokens(), one.job.tokens);
    EXPECT_EQ(streamed->report.epochs(), epochs);
    if (one.epoch_tokens > 0) EXPECT_GT(epochs, 1) << one.name;
    const auto expected = ExpectRows(one.job, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(Mismatch(one.job, streamed->result, *expected), "");
    // Numbers of a segment on one worker are added in one order.
    const bool local =
        whole->report.bytes_exchanged() == 0 && streamed->report.bytes_exchanged() == 0;
    EXPECT_TRUE(local || GetParam() > 1);
    if (!local) continue;
    ++alike;
    EXPECT_TRUE(SameBits(streamed->result.out, whole->result.out));
    EXPECT_TRUE(SameBits(streamed->result.lse, whole->result.lse));
  }
  EXPECT_GT(alike, 0);
}

INSTANTIATE_TEST_SUITE_P(Workers, Streams,
                         ::testing::ValuesIn(AtDepth<std::vector<int>>({3}, {1, 3}, {1, 2, 3})));

}  // namespace
}  // namespace hilbert_ring::testing

#include "server/stream/epochs.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

JobSpec Stream(std::vector<Branch> branches) {
  JobSpec spec = PlainSpec({.tokens = 0, .heads = 2, .dim = 8});
  spec.branches = std::move(branches);
  return spec;
}

// A row of Stream: q, k, v and out of 64 bytes each.
constexpr int64_t kRowBytes = 256;

absl::StatusOr<Epochs> Make(const JobSpec& spec, int64_t most_rows, int64_t asked = 0) {
  return Epochs::Make(spec, {.asked = asked, .most_bytes = most_rows * kRowBytes});
}

void ExpectRefused(const absl::StatusOr<Epochs>& epochs, const wire::Reason& reason,
                   const std::string& message) {
  ASSERT_FALSE(epochs.ok());
  EXPECT_EQ(wire::ReasonOf(epochs.status()), reason.name);
  EXPECT_THAT(std::string(epochs.status().message()), HasSubstr(message));
}

std::vector<int64_t> Cut(const Epochs& epochs, int64_t rows) {
  std::vector<int64_t> cut;
  for (int64_t begin = 0; begin < rows; begin += cut.back()) {
    cut.push_back(epochs.DueAt(begin, rows, true));
    if (cut.back() == 0) break;
  }
  return cut;
}

TEST(Epochs, HaveAsManyCommonMultiplesAsFit) {
  const auto epochs = Make(Stream({{6, 1}, {4, 2}}), 100);
  ASSERT_TRUE(epochs.ok()) << epochs.status();
  EXPECT_EQ(epochs->multiple(), 12);
  EXPECT_EQ(epochs->tokens(), 96);
  EXPECT_EQ(epochs->input_row_bytes(), 192);
  EXPECT_EQ(epochs->output_row_bytes(), 64);
  EXPECT_LE(epochs->held_bytes(), 2 * 100 * kRowBytes);
  EXPECT_EQ(epochs->DueAt(0, 95, false), 0);
  EXPECT_EQ(epochs->DueAt(0, 96, false), 96);
  EXPECT_EQ(epochs->DueAt(96, 190, false), 0);
  EXPECT_EQ(Cut(*epochs, 200), (std::vector<int64_t>{96, 96, 8}));
  EXPECT_EQ(Cut(*epochs, 192), (std::vector<int64_t>{96, 96}));
  EXPECT_EQ(Cut(*epochs, 5), (std::vector<int64_t>{5}));
}

TEST(Epochs, OfAWindowAreMultiplesOfItToo) {
  JobSpec spec = Stream({{6, 1}});
  spec.ordering.emplace().window = 4;
  const auto epochs = Make(spec, 100);
  ASSERT_TRUE(epochs.ok()) << epochs.status();
  EXPECT_EQ(epochs->multiple(), 12);
}

TEST(Epochs, HaveTheRequestedTokens) {
  const auto epochs = Make(Stream({{6, 1}}), 100, 24);
  ASSERT_TRUE(epochs.ok()) << epochs.status();
  EXPECT_EQ(epochs->tokens(), 24);
  ExpectRefused(Make(Stream({{6, 1}}), 100, 25), wire::reason::kInvalidOpen,
                "epoch_tokens is 25, must be a multiple of 6");
  ExpectRefused(Make(Stream({{6, 1}}), 100, -6), wire::reason::kInvalidOpen, "epoch_tokens is -6");
  ExpectRefused(Make(Stream({{6, 1}}), 100, 102), wire::reason::kDoesNotFit, "96 would fit");
}

TEST(Epochs, TheErrorNamesTheSmallestSufficientEpoch) {
  ExpectRefused(Make(Stream({{7, 1}, {11, 1}, {13, 1}}), 1000), wire::reason::kDoesNotFit,
                "has 1001 tokens, whose rows and outputs take 256256 bytes; the limit is 256000 "
                "bytes (a sixteenth of --stream-memory)");
  EXPECT_TRUE(Make(Stream({{7, 1}, {11, 1}, {13, 1}}), 1001).ok());
  ExpectRefused(Make(Stream({{int64_t{1} << 61, 1}}), 1000), wire::reason::kDoesNotFit,
                "2305843009213693952 tokens");
  ExpectRefused(Make(Stream({{(int64_t{1} << 61) - 1, 1}, {1 << 20, 1}}), 1000),
                wire::reason::kDoesNotFit, "more than 2^63 tokens");
  JobSpec wide = PlainSpec({.tokens = 0, .heads = 4096, .dim = 256});
  wide.branches = {{int64_t{1} << 39, 1}};
  ExpectRefused(
      Make(wide, 1000), wire::reason::kDoesNotFit,
      "has 549755813888 tokens; the limit is 256000 bytes (a sixteenth of --stream-memory), and "
      "no service has enough");
}

TEST(Epochs, OfZeroKeysAreNeverShorterThanASegment) {
  JobSpec spec = Stream({{4, 1}, {8, 2}});
  spec.tail = Tail::kZero;
  const auto epochs = Make(spec, 24);
  ASSERT_TRUE(epochs.ok()) << epochs.status();
  EXPECT_EQ(epochs->tokens(), 16);
  EXPECT_EQ(epochs->most_tokens(), 24);
  EXPECT_EQ(epochs->DueAt(0, 23, false), 0);
  EXPECT_EQ(epochs->DueAt(0, 24, false), 16);
  EXPECT_EQ(Cut(*epochs, 23), (std::vector<int64_t>{23}));
  EXPECT_EQ(Cut(*epochs, 24), (std::vector<int64_t>{16, 8}));
  EXPECT_EQ(Cut(*epochs, 39), (std::vector<int64_t>{16, 23}));
  spec.causal = true;  // without zero keys
  EXPECT_EQ(Make(spec, 24)->tokens(), 24);
}

TEST(Epochs, OfPackedSequencesEndWithOne) {
  JobSpec spec = Stream({{1000, 1}});
  spec.sequence_lengths = {3, 7};
  spec.tail = Tail::kZero;
  const auto epochs = Make(spec, 35);
  ASSERT_TRUE(epochs.ok()) << epochs.status();
  EXPECT_EQ(epochs->tokens(), 30);
  EXPECT_EQ(epochs->most_tokens(), 30);
  EXPECT_EQ(epochs->SpecOf(30).sequence_lengths, (std::vector<int64_t>{3, 7, 3, 7, 3, 7}));
  EXPECT_EQ(epochs->SpecOf(18).sequence_lengths, (std::vector<int64_t>{3, 7, 3, 5}));
  EXPECT_TRUE(Validate(epochs->SpecOf(18)).ok());
  const auto few =
      Epochs::Make(spec, {.most_bytes = 1000 * kRowBytes, .spec = {.max_sequences = 5}});
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_EQ(few->tokens(), 20);
}

TEST(Epochs, AreHalvedDownToTheSmallest) {
  auto epochs = Make(Stream({{10, 1}}), 75);
  ASSERT_TRUE(epochs.ok()) << epochs.status();
  std::vector<int64_t> tokens = {epochs->tokens()};
  while (epochs->Halve()) tokens.push_back(epochs->tokens());
  EXPECT_EQ(tokens, (std::vector<int64_t>{70, 30, 10}));
}

TEST(Epochs, RefuseOptionsThatAStreamLacks) {
  JobSpec spec = Stream({{4, 1}});
  spec.tokens = 8;
  ExpectRefused(Make(spec, 100), wire::reason::kInvalidSpec, "tokens is 8");
  spec.tokens = 0;
  spec.ordering.emplace();
  ExpectRefused(Make(spec, 100), wire::reason::kInvalidSpec, "ordering.window is 0");
  spec.ordering->grid = {2, 2};
  ExpectRefused(Make(spec, 100), wire::reason::kInvalidSpec, "ordering.grid: a stream");
  spec.ordering.emplace().coordinate_axes = 2;
  ExpectRefused(Make(spec, 100), wire::reason::kInvalidSpec, "ordering.coords: a stream");
  spec.ordering.emplace();
  spec.sequence_lengths = {16};  // each sequence has its own order
  EXPECT_TRUE(Make(spec, 100).ok());
  spec.alibi = Alibi{std::vector<double>(spec.heads), 2};
  ExpectRefused(Make(spec, 100), wire::reason::kInvalidSpec, "alibi.distance is coords");
}

}  // namespace
}  // namespace hilbert_ring::server

#include "engine/order/permutation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/order/naive_order.h"

namespace hilbert_ring {
namespace {

using testing::HasSubstr;

struct Shape {
  std::vector<int64_t> lengths;
  int64_t window = 0;
  std::vector<int64_t> grid = {};
};

JobSpec SpecOf(Curve curve, const Shape& shape) {
  JobSpec spec;
  spec.tokens = std::accumulate(shape.lengths.begin(), shape.lengths.end(), int64_t{0});
  if (shape.lengths.size() > 1) spec.sequence_lengths = shape.lengths;
  spec.ordering = Ordering{.curve = curve, .window = shape.window, .grid = shape.grid};
  return spec;
}

std::string Describe(const JobSpec& spec) {
  return "tokens " + std::to_string(spec.tokens) + ", sequences " +
         testing::PrintToString(spec.sequence_lengths) + ", window " +
         std::to_string(spec.ordering->window) + ", grid " +
         testing::PrintToString(spec.ordering->grid) +
         (spec.ordering->curve == Curve::kHilbert ? ", hilbert" : ", morton");
}

// Compares both directions, whole and in ranges, with the definition.
void ExpectOrder(const Permutation& order, const std::vector<int64_t>& expected) {
  const auto tokens = static_cast<int64_t>(expected.size());
  std::vector<int64_t> slot_of(tokens), all(tokens);
  for (int64_t s = 0; s < tokens; ++s) slot_of[expected[s]] = s;
  order.Tokens(0, all);
  ASSERT_EQ(all, expected);
  order.Slots(0, all);
  ASSERT_EQ(all, slot_of);
  order.Tokens(tokens, {});
  order.Slots(tokens, {});
  std::mt19937_64 random(tokens);
  for (int i = 0; i < 30; ++i) {
    const auto begin = static_cast<int64_t>(random() % tokens);
    std::vector<int64_t> part(random() % std::min<int64_t>(tokens - begin, 300) + 1);
    order.Tokens(begin, part);
    ASSERT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + begin))
        << "slots " << begin;
    order.Slots(begin, part);
    ASSERT_TRUE(std::equal(part.begin(), part.end(), slot_of.begin() + begin))
        << "tokens " << begin;
  }
}

class ImplicitOrderTest : public testing::TestWithParam<Shape> {};

TEST_P(ImplicitOrderTest, StoredAndEvaluatedOrdersAreTheDefinition) {
  for (const Curve curve : {Curve::kHilbert, Curve::kMorton}) {
    const JobSpec spec = SpecOf(curve, GetParam());
    SCOPED_TRACE(Describe(spec));
    const std::vector<int64_t> expected = NaiveOrder(spec, {});
    // A limit of 150 stores only some lengths of the mixed shapes.
    for (const int64_t max_stored :
         {Permutation::kDefaultMaxStoredTokens, int64_t{0}, int64_t{150}}) {
      const auto order = Permutation::Make(spec, {}, max_stored);
      ASSERT_TRUE(order.ok()) << order.status();
      ASSERT_NO_FATAL_FAILURE(ExpectOrder(**order, expected)) << "max_stored " << max_stored;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Squares, ImplicitOrderTest,
                         testing::Values(Shape{{1}}, Shape{{255}}, Shape{{257}}, Shape{{1000}},
                                         Shape{{1024}}, Shape{{4097}}, Shape{{20000}}));
INSTANTIATE_TEST_SUITE_P(Windows, ImplicitOrderTest,
                         testing::Values(Shape{{100}, 1}, Shape{{100}, 7}, Shape{{1000}, 64},
                                         Shape{{1000}, 300}, Shape{{1000}, 1000},
                                         Shape{{1000}, 999}, Shape{{1000}, int64_t{1} << 62},
                                         Shape{{3000}, 1024}, Shape{{1}, 5}));
INSTANTIATE_TEST_SUITE_P(Grids, ImplicitOrderTest,
                         testing::Values(Shape{{480}, 0, {20, 24}}, Shape{{480}, 0, {4, 12, 10}},
                                         Shape{{777}, 0, {1, 777}}, Shape{{777}, 0, {777, 1}},
                                         Shape{{300}, 0, {1, 1, 300}}, Shape{{300}, 0, {300, 1, 1}},
                                         Shape{{4096}, 0, {64, 64}}, Shape{{6840}, 0, {18, 19, 20}},
                                         Shape{{4352}, 0, {16, 16, 17}}));
INSTANTIATE_TEST_SUITE_P(Sequences, ImplicitOrderTest,
                         testing::Values(Shape{{100, 1, 37, 100, 400}}, Shape{{64, 64, 64}},
                                         Shape{{5, 1, 1, 2}}, Shape{{100, 1, 37, 100, 400}, 32},
                                         Shape{{100, 40, 300}, 64},
                                         Shape{{120, 120, 120}, 0, {10, 12}},
                                         Shape{{60, 60}, 0, {3, 4, 5}}));

TEST(PermutationTest, EveryShortSquareAndGrid) {
  for (const Curve curve : {Curve::kHilbert, Curve::kMorton}) {
    const auto check = [curve](const Shape& shape) {
      const JobSpec spec = SpecOf(curve, shape);
      const auto order = Permutation::Make(spec, {}, 0);
      ASSERT_TRUE(order.ok()) << order.status();
      ASSERT_NO_FATAL_FAILURE(ExpectOrder(**order, NaiveOrder(spec, {}))) << Describe(spec);
    };
    for (int64_t tokens = 1; tokens <= 140; ++tokens) ASSERT_NO_FATAL_FAILURE(check({{tokens}}));
    for (int64_t rows = 1; rows <= 18; rows += 3) {
      for (int64_t cols = 1; cols <= 19; ++cols) {
        ASSERT_NO_FATAL_FAILURE(check({{rows * cols}, 0, {rows, cols}}));
        ASSERT_NO_FATAL_FAILURE(check({{3 * rows * cols}, 0, {rows, 3, cols}}));
      }
    }
  }
}

TEST(PermutationTest, CoordinatesOfEachSequenceAreOrderedAlone) {
  std::mt19937_64 random(5);
  for (const Curve curve : {Curve::kHilbert, Curve::kMorton}) {
    for (const int axes : {2, 3}) {
      // With few bits many tokens share a cell and keep their order.
      for (const int bits : {0, 1, 3, 10, axes == 2 ? 32 : 21}) {
        for (const std::vector<int64_t>& lengths :
             {std::vector<int64_t>{3000}, {1}, {200, 1, 1700, 50}}) {
          JobSpec spec = SpecOf(curve, {lengths});
          spec.ordering->coordinate_axes = axes;
          std::vector<int64_t> coords(spec.tokens * axes);
          const uint64_t mask = (uint64_t{1} << bits) - 1;
          for (int64_t& c : coords) c = static_cast<int64_t>(random() & mask);
          // Smaller coordinates in the second half give its sequences fewer bits.
          for (size_t i = coords.size() / 2; i < coords.size(); ++i) coords[i] >>= 2;
          const auto order = Permutation::Make(spec, coords, 0);
          ASSERT_TRUE(order.ok()) << order.status();
          EXPECT_EQ((*order)->resident_bytes(), 8 * spec.tokens);
          ASSERT_NO_FATAL_FAILURE(ExpectOrder(**order, NaiveOrder(spec, coords)))
              << Describe(spec) << ", axes " << axes << ", bits " << bits;
        }
      }
    }
  }
}

TEST(PermutationTest, WithoutAnOrderingItIsTheIdentity) {
  JobSpec spec;
  spec.tokens = int64_t{1} << 40;
  const auto order = Permutation::Make(spec, {});
  ASSERT_TRUE(order.ok()) << order.status();
  EXPECT_EQ((*order)->resident_bytes(), 0);
  std::vector<int64_t> values(3);
  (*order)->Tokens(5, values);
  EXPECT_EQ(values, (std::vector<int64_t>{5, 6, 7}));
  (*order)->Slots((int64_t{1} << 40) - 3, values);
  EXPECT_EQ(values[2], (int64_t{1} << 40) - 1);
}

TEST(PermutationTest, BadCoordinatesAreNamed) {
  const int64_t limit_2d = int64_t{1} << 32, limit_3d = int64_t{1} << 21;
  const auto refused = [](int axes, const std::vector<int64_t>& coords, const char* why) {
    JobSpec spec = SpecOf(Curve::kHilbert, {{3}});
    spec.ordering->coordinate_axes = axes;
    const absl::Status status = Permutation::Make(spec, coords).status();
    EXPECT_THAT(status.message(), HasSubstr(why));
    return status.code();
  };
  EXPECT_EQ(refused(2, {0, 0, 1, 1, limit_2d - 1, limit_2d - 1}, ""), absl::StatusCode::kOk);
  EXPECT_EQ(refused(2, {0, 0, 1, 1}, "has 4 numbers, must have 6"),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(2, {0, 0, 1, -7, 2, 2}, "coords[1][1] is -7"), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(refused(2, {0, 0, 1, 1, limit_2d, 2}, "coords[2][0] is 4294967296"),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(refused(3, {0, 0, 0, 1, 1, limit_3d, 0, 0, 0}, "coords[1][2] is 2097152"),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(refused(0, {1, 2}, ""), absl::StatusCode::kInvalidArgument);
}

TEST(PermutationTest, LengthsAreStoredOnceAndUpToTheLimit) {
  const Shape shape = {{1000, 1000, 600, 1000}};
  const auto bytes = [](const Shape& shape, int64_t max_stored) {
    return (*Permutation::Make(SpecOf(Curve::kHilbert, shape), {}, max_stored))->resident_bytes();
  };
  EXPECT_GE(bytes(shape, 1600), 8 * 1600);
  EXPECT_LT(bytes(shape, 1600), 8 * 1600 + 1000);
  EXPECT_GE(bytes(shape, 1599), 8 * 1000);  // the limit is on the sum of lengths
  EXPECT_LT(bytes(shape, 1599), 8 * 1000 + 1000);
  EXPECT_LT(bytes(shape, 599), 1000);
  EXPECT_LT(bytes({{int64_t{1} << 40}, 512}, 512), 8 * 512 + 1000);
}

// Orders too large to store: slots of tokens of slots, one by one and in ranges.
class VastOrderTest : public testing::TestWithParam<Shape> {};

TEST_P(VastOrderTest, SlotsOfTokensOfSlotsAreTheSlots) {
  for (const Curve curve : {Curve::kHilbert, Curve::kMorton}) {
    const JobSpec spec = SpecOf(curve, GetParam());
    SCOPED_TRACE(Describe(spec));
    const auto order = Permutation::Make(spec, {});
    ASSERT_TRUE(order.ok()) << order.status();
    EXPECT_LT((*order)->resident_bytes(), 1000);
    std::mt19937_64 random(7);
    std::vector<int64_t> tokens(100), token(1), slot(1), slots(100);
    for (int i = 0; i < 200; ++i) {
      const int64_t last = spec.tokens - static_cast<int64_t>(tokens.size());
      const int64_t first = i == 0 ? 0 : i == 1 ? last : static_cast<int64_t>(random() % last);
      (*order)->Tokens(first, tokens);
      for (size_t j = 0; j < tokens.size(); ++j) {
        const int64_t expected = first + static_cast<int64_t>(j);
        ASSERT_GE(tokens[j], 0);
        ASSERT_LT(tokens[j], spec.tokens);
        (*order)->Slots(tokens[j], slot);
        ASSERT_EQ(slot[0], expected);
        (*order)->Tokens(expected, token);
        ASSERT_EQ(token[0], tokens[j]);
      }
      (*order)->Slots(first, slots);
      for (size_t j = 0; j < slots.size(); ++j) {
        (*order)->Tokens(slots[j], token);
        ASSERT_EQ(token[0], first + static_cast<int64_t>(j));
      }
    }
  }
}

constexpr int64_t kK = int64_t{1} << 10, kM = int64_t{1} << 20, kT = int64_t{1} << 40;
INSTANTIATE_TEST_SUITE_P(Vast, VastOrderTest,
                         testing::Values(Shape{{kT}}, Shape{{kT - 12345}}, Shape{{kT / 3}},
                                         Shape{{kT / 4 + 1}}, Shape{{kT}, 0, {kM, kM}},
                                         Shape{{(kM - 7) * (kM - 1000)}, 0, {kM - 7, kM - 1000}},
                                         Shape{{kT}, 0, {kT >> 32, int64_t{1} << 32}},
                                         Shape{{kT}, 0, {int64_t{1} << 32, kT >> 32}},
                                         Shape{{8 * kK * kK * kK}, 0, {2 * kK, 2 * kK, 2 * kK}},
                                         Shape{{2 * kM * 300 * 700}, 0, {300, 2 * kM, 700}},
                                         Shape{{kT}, (int64_t{1} << 32) + 17},
                                         Shape{{kT / 2, kT / 4, kT / 4 - 5}}));

}  // namespace
}  // namespace hilbert_ring

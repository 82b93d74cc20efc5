// Products of bfloat16 by AMX and by the plain code that replaces it have the same bits.
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/device/cpu/cpu_device.h"
#include "engine/device/cpu/machine.h"
#include "gtest/gtest.h"
#include "tests/unit/device/attention_case.h"
#include "tests/unit/device/devices_under_test.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/unit/device/amx_test.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "engine/device/cpu/amx_tiles-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring {
namespace HWY_NAMESPACE {

// sums += a . b, each [16][16] of 32 bits.
template <typename Tiles>
void MultiplyTiles(const uint32_t* a, const uint32_t* b, uint32_t* sums) {
  constexpr int64_t kRowBytes = 64;
  Tiles tiles;
  tiles.template Load<0>(sums, kRowBytes);
  tiles.template Load<1, true>(a, kRowBytes);
  tiles.template Load<2>(b, kRowBytes);
  tiles.template MultiplyAdd<0, 1, 2>();
  tiles.template Store<0>(sums, kRowBytes);
}

void MultiplyByInstructions(const uint32_t* a, const uint32_t* b, uint32_t* sums) {
  MultiplyTiles<InstructionTiles>(a, b, sums);
}

void MultiplyByPlainCode(const uint32_t* a, const uint32_t* b, uint32_t* sums) {
  MultiplyTiles<EmulatedTiles>(a, b, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hilbert_ring {

HWY_EXPORT(MultiplyByInstructions);
HWY_EXPORT(MultiplyByPlainCode);

namespace {

constexpr int kElements = 16 * 16;

class Amx : public testing::Test {
 protected:
  void SetUp() override {
    if (!AllowAmxBFloat16()) {
      GTEST_SKIP() << "the processor has no products of bfloat16 by tiles (amx_bf16), or the "
                      "system does not let processes use them";
    }
  }
};

// A bfloat16 with a random exponent from `least` to `greatest`: 0 is subnormal, 255 not finite.
uint32_t Number(std::mt19937_64& random, int least, int greatest) {
  const auto exponent =
      static_cast<uint32_t>(std::uniform_int_distribution<int>(least, greatest)(random));
  return static_cast<uint32_t>(random() % 2) << 15 | exponent << 7 |
         static_cast<uint32_t>(random() % 128);
}

struct Exponents {
  int least, greatest;          // of numbers
  int least_sum, greatest_sum;  // of the sums before
};

void ExpectSameBits(const Exponents& exponents, std::mt19937_64& random) {
  std::vector<uint32_t> a(kElements), b(kElements), before(kElements);
  for (std::vector<uint32_t>* pairs : {&a, &b}) {
    for (uint32_t& pair : *pairs) {
      pair = Number(random, exponents.least, exponents.greatest) << 16 |
             Number(random, exponents.least, exponents.greatest);
    }
  }
  for (uint32_t& sum : before) {
    sum = Number(random, exponents.least_sum, exponents.greatest_sum) << 16 |
          static_cast<uint32_t>(random() % 65536);
  }
  std::vector<uint32_t> by_tiles = before, by_code = before;
  HWY_DYNAMIC_DISPATCH(MultiplyByInstructions)(a.data(), b.data(), by_tiles.data());
  HWY_DYNAMIC_DISPATCH(MultiplyByPlainCode)(a.data(), b.data(), by_code.data());
  for (int i = 0; i < kElements; ++i) {
    const float found = std::bit_cast<float>(by_tiles[i]),
                expected = std::bit_cast<float>(by_code[i]);
    if (std::isnan(found) && std::isnan(expected)) continue;
    ASSERT_EQ(by_tiles[i], by_code[i])
        << i << ": " << found << ", " << expected << ", exponents from " << exponents.least;
  }
}

TEST_F(Amx, TilesOfAnyNumbersAreWhatThePlainCodeMakes) {
  std::mt19937_64 random(1);
  for (const Exponents& exponents : {
           Exponents{120, 130, 120, 130},  // of ordinary size
           Exponents{100, 150, 90, 160},
           Exponents{50, 75, 0, 10},  // products around float32's least normal number
           Exponents{60, 66, 0, 3}, Exponents{0, 3, 0, 130},          // subnormal
           Exponents{0, 130, 0, 130}, Exponents{180, 200, 240, 254},  // products that overflow
           Exponents{0, 254, 0, 254}, Exponents{120, 255, 0, 255},    // not finite
       }) {
    for (int round = 0; round < 300 && !HasFailure(); ++round) ExpectSameBits(exponents, random);
  }
}

}  // namespace
}  // namespace hilbert_ring
#endif  // HWY_ONCE

#include "bench/multiply_add.h"

#include <atomic>
#include <string>

#include "bench/measure.h"

// The instruction sets of the attention kernels.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/multiply_add.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hilbert_ring::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Two units with a latency of four to five cycles need eight to ten sums. AVX2's sixteen registers
// hold twelve.
int64_t Run(int64_t steps, float* result) {
  const hn::ScalableTag<float> tag;
  const auto factor = hn::Set(tag, 0.999f), addend = hn::Set(tag, 0.001f);
  // Different values, because the compiler would compute equal sums once.
  const auto start = [&](int i) { return hn::Set(tag, static_cast<float>(i)); };
  auto s0 = start(0), s1 = start(1), s2 = start(2), s3 = start(3), s4 = start(4), s5 = start(5);
  auto s6 = start(6), s7 = start(7), s8 = start(8), s9 = start(9), s10 = start(10), s11 = start(11);
  for (int64_t i = 0; i < steps; ++i) {
    s0 = hn::MulAdd(s0, factor, addend);
    s1 = hn::MulAdd(s1, factor, addend);
    s2 = hn::MulAdd(s2, factor, addend);
    s3 = hn::MulAdd(s3, factor, addend);
    s4 = hn::MulAdd(s4, factor, addend);
    s5 = hn::MulAdd(s5, factor, addend);
    s6 = hn::MulAdd(s6, factor, addend);
    s7 = hn::MulAdd(s7, factor, addend);
    s8 = hn::MulAdd(s8, factor, addend);
    s9 = hn::MulAdd(s9, factor, addend);
    s10 = hn::MulAdd(s10, factor, addend);
    s11 = hn::MulAdd(s11, factor, addend);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)),
                           hn::Add(hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)),
                                   hn::Add(hn::Add(s8, s9), hn::Add(s10, s11))));
  *result = hn::GetLane(hn::SumOfLanes(tag, sum));
  return steps * 12 * 2 * static_cast<int64_t>(hn::Lanes(tag));
}

const char* Target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace hilbert_ring::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hilbert_ring::bench {

HWY_EXPORT(Run);
HWY_EXPORT(Target);

int64_t MultiplyAdds(int64_t steps) {
  float result = 0;
  const int64_t operations = HWY_DYNAMIC_DISPATCH(Run)(steps, &result);
  // Keeps the compiler from removing an unused result.
  static std::atomic<float> seen;
  seen.store(result, std::memory_order_relaxed);
  return operations;
}

std::string MultiplyAddTarget() { return HWY_DYNAMIC_DISPATCH(Target)(); }

}  // namespace hilbert_ring::bench
#endif  // HWY_ONCE

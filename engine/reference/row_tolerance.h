// The tolerance of a row: the effect of float32 arithmetic on its numbers, in any order, plus the
// rounding of the result's type. It has no absolute constant: numbers multiplied by a power of two
// have their tolerance multiplied by it.
//
// Let u = 2^-24, and for one query and head, over all keys j that it sees in all its branches:
//   p_j = q . k_j;  a_j = sum of |q_i k_ji|;  x_j = scale (p_j - greatest p) <= 0;  w_j = e^x_j
//   v_j the value, out = sum w_j v_j / sum w_j,  K the number of keys.
//
// 1. A product p_j is off by at most
//      e_j = (head_dim + 2) u a_j + head_dim t,
//    the bound of float32 sums of head_dim terms in any order. t = 2^-149 is the loss below
//    float32's normal numbers. Bfloat16's products may be flushed to 0: its t is 2^-126, and terms
//    with a subnormal factor may be missing. The bound doubles for 16-bit types, because tensor
//    cores truncate. It is 0 if all terms are multiples of one power of two g and a_j <= 2^24 g:
//    every partial sum is then a float32.
// 2. The exponent x_j is then off by at most
//      h_j = |scale| e_j + 2 u |scale p_j| + |scale' - scale| |p_j - greatest p| + 4 u |x_j| + 4 u:
//    from the product; from rounding the scaled score and the greatest one (0 if scale is a power
//    of two); from scale's own rounding to scale'; from the subtraction and the exponential.
// 3. A weight that is off by a factor within e^(+-h_j) moves out by at most the least of
//      A: sum w_j (e^h_j - 1) |v_j - out| / sum w_j e^-h_j
//      B: A with h_j + h_t for h_j. The key t of the greatest score is missing in the numerator,
//         and has weight 1 in the denominator. A factor common to all weights has no
//         effect, so t's may be taken as 1. B is 0 if t is far ahead, however large the scores are.
//      C: max |v_j - out| over the keys that can have a weight at all, x_j + h_j + h_t >= -105: an
//         average stays within its values.
//    Reason: sum w_j (w'_j/w_j - 1)(v_j - out) is the numerator of the difference, and
//    sum w_j (v_j - out) = 0.
// 4. Weights below float32's least normal number, e^-87.3, may be missing:
//      sum of w_j |v_j - out| over x_j < -86.6.
//    The margin covers h_j up to log 2; beyond, 3. already allows for the whole weight.
// 5. Sums of weights and of weighted values round. With m roundings between a term and the result
//    the sums are off by m u sum w_j |v_j| and m u sum w_j. Kernels sum tiles of 64 keys, add up 64
//    tiles, and fold these: m = 256 + K / 1024, with room for rescaling and merges of rings and
//    branches. Tensor cores add 16 keys at a time and truncate: m = 256 + K / 8 for 16-bit types.
//    m is never more than K (2 K for 16-bit types) + 16. The loss below float32's normal numbers is
//    K t, or sum w_j |v_j| if that is less in bfloat16.
// 6. Kernels for 16-bit types may round weights to the type but not their sum:
//      sum w_j |v_j| 2^-8 for bfloat16, 2^-11 for float16 (2^-25 or more for each weight).
// 7. The result is rounded by half its type's spacing, also among subnormal numbers. A 16-bit
//    result that is averaged over branches is rounded before and after, unless by a power of two.
//
// 8. With softcap, alibi or sinks, scores s_j are compared in place of products. In 2. and for the
//    log-sum-exp, s_j then stands for p_j, 1 for scale, and the error of s_j for e_j. The term
//    2 u |s_j| stays if scores change. The error of s_j is the sum of these steps:
//      The score before a change is off by
//        f_j = |scale| e_j + |scale' - scale| |p_j| + u |scale p_j| (0 if scale is a power of two).
//      Softcap c makes f_j, with g(s) = c tanh(s / c),
//        g(|s|) - g(|s| - f_j) + 11 u |g(s)| + 2^-126 c,
//        because g's derivative is at most 1 and falls with |s|. Roundings of c, of the quotient
//        and of the result move g by u each, the tangent moves it by 8 u. A quotient below
//        float32's normal numbers may be missing.
//      Alibi adds 3 u |slope distance| + u |s_j|: from slope, distance, product and subtraction.
//      A distance of coordinates adds 3 u |slope distance| + 2^-60 |slope| to that. Differences and
//      squares round by u each, the square counts the difference twice, two sums round, and the
//      root halves that sum of 5 u and rounds: 3.5 u, of which the first 3 u hold 1 u. Squares
//      below float32's normal numbers may be missing: three are a distance below 2^-62.
//    A sink is a key with a value of 0. Its error is its rounding to float32. Kernels merge it in
//    float64: all keys can have a weight in C if a sink is t.
//
// The log-sum-exp is the greatest score s plus the logarithm of the sum of weights. It is off by
//   max(log(sum w_j e^h_j / sum w_j), log(sum w_j / sum w_j e^-h_j)) + m u
//   + |scale' - scale| |greatest p| + 6 u (|s| + |log sum w_j|) + half the spacing of float32.
//
// A head of a row is judged if all numbers that it sees are finite. Sums of |q_i k_ji|, scaled or
// not, and |s_j| + |slope distance| must also be at most half of float32's greatest number.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/reference/attention_reference.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

struct RowTolerance {
  std::vector<double> out;      // [heads, value_dim]
  std::vector<double> lse;      // [heads]
  std::vector<uint8_t> judged;  // [heads]: 0 or 1
  bool AllJudged() const;
};

// `row` is ReferenceAttentionRow's of the same arguments. Reads all keys that the row sees again.
RowTolerance ToleranceOfRow(const JobSpec& spec, const Permutation& order, int64_t token,
                            const RowSource& q, const RowSource& k, const RowSource& v,
                            const RowSource* coordinates, const ReferenceRow& row);

// The spacing of the type's numbers at |value|, subnormal ones included.
double Spacing(DataType dtype, double value);

}  // namespace hilbert_ring

// How far a right row may be from its reference: what float32 arithmetic on the row's own numbers
// can do to it, in whatever order it is done, and the rounding of the result's type. Nothing in it
// is a constant of its own: a row whose numbers are multiplied by a power of two has its tolerance
// multiplied likewise.
//
// Let u = 2^-24, and for one query and head, over all keys j that it sees in all its branches:
//   p_j = q . k_j;  a_j = sum of |q_i k_ji|;  x_j = scale (p_j - greatest p) <= 0;  w_j = e^x_j
//   v_j the value, out = sum w_j v_j / sum w_j,  K the number of keys.
//
// 1. A product p_j is off by at most
//      e_j = (head_dim + 2) u a_j + head_dim t,
//    the bound for float32 sums of head_dim terms in any order (t = 2^-149, what is lost below
//    float32's normal numbers; for bfloat16, whose products may be flushed to 0, t = 2^-126, and
//    terms with a subnormal factor may be missing as a whole). Twice that for 16-bit types: tensor
//    cores cut off where others round. It is 0 where no order of summing rounds: all terms are
//    multiples of one power of two g and a_j <= 2^24 g, so that every partial sum is a float32.
// 2. The exponent x_j is then off by at most
//      h_j = |scale| e_j + 2 u |scale p_j| + |scale' - scale| |p_j - greatest p| + 4 u |x_j| + 4 u:
//    from the product; from a score that is rounded once it is scaled, and the greatest one
//    (nothing where scale is a power of two); from scale's own rounding to scale'; from the
//    subtraction and the exponential function.
// 3. A weight that is off by a factor within e^(+-h_j) moves out by at most the least of
//      A: sum w_j (e^h_j - 1) |v_j - out| / sum w_j e^-h_j
//      B: the same with h_j + h_t for h_j, the key t of the greatest score left out above and with
//         weight 1 below: a factor that all weights share moves nothing, so t's may be taken as 1.
//         Where t is far ahead this is 0, however large the scores are.
//      C: max |v_j - out| over the keys that can have a weight at all, x_j + h_j + h_t >= -105: an
//         average stays among what is averaged.
//    For sum w_j (w'_j/w_j - 1)(v_j - out) is the numerator of the difference, and sum w_j (v_j -
//    out) = 0.
// 4. Weights below float32's least normal number, e^-87.3, may be missing:
//      sum of w_j |v_j - out| over x_j < -86.6, for x_j is off by h_j, and where h_j passes log 2,
//      3. allows for the whole weight already.
// 5. Sums of weights and of weighted values round on their way. With m roundings between a term and
//    the result the sums are off by m u sum w_j |v_j| and m u sum w_j. Kernels sum tiles of 64
//    keys, add up 64 tiles, and fold these: m = 256 + K / 1024, with room for rescaling and merges
//    of rings and branches; tensor cores add 16 keys at a time and cut off: m = 256 + K / 8 for
//    16-bit types; and never more than K (2 K) + 16. What is lost below float32's normal numbers is
//    K t, for bfloat16 no more than sum w_j |v_j|.
// 6. Kernels for 16-bit types may round weights to the type and leave their sum as it was:
//      sum w_j |v_j| 2^-8 for bfloat16, 2^-11 for float16, whose weights have no less than 2^-25.
// 7. The result is rounded: half the type's spacing there, which below the normal numbers is that
//    of the subnormal ones. A 16-bit result that is averaged over branches is rounded before and
//    after, unless by a power of two.
//
// The log-sum-exp is the greatest score s plus the logarithm of the sum of weights. It is off by
//   max(log(sum w_j e^h_j / sum w_j), log(sum w_j / sum w_j e^-h_j)) + m u
//   + |scale' - scale| |greatest p| + 6 u (|s| + |log sum w_j|) + half the spacing of float32.
//
// Not judged is a head of a row that sees what is not finite, or whose products may leave float32:
// where sums of |q_i k_ji|, scaled or not, pass half of its greatest number.
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

// Of a row that ReferenceAttentionRow made from the same. Reads all that the row sees once more.
RowTolerance ToleranceOfRow(const JobSpec& spec, const Permutation& order, int64_t token,
                            const RowSource& q, const RowSource& k, const RowSource& v,
                            const ReferenceRow& row);

// Between the type's numbers at |value|, subnormal ones included.
double Spacing(DataType dtype, double value);

}  // namespace hilbert_ring

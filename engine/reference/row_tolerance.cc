#include "engine/reference/row_tolerance.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "engine/order/permutation.h"
#include "engine/reference/seen_keys.h"

namespace hilbert_ring {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kLeastFloat = 0x1p-149;
constexpr double kLeastNormal = 0x1p-126;
constexpr double kGreatestFloat = std::numeric_limits<float>::max();
constexpr double kLog2E = 1.4426950408889634;
constexpr double kLeastExponent = -86.6;    // weights below it may be missing
constexpr double kNoWeightExponent = -105;  // float32 has no number below it
constexpr double kLeastDistance = 0x1p-60;  // of coordinates: smaller ones may be missing
constexpr int kNoGrain = 1 << 20;           // of 0, a multiple of every number

// The g of |value| = n 2^g with odd n.
int Grain(double value) {
  if (value == 0) return kNoGrain;
  const auto bits = std::bit_cast<uint64_t>(value);
  constexpr uint64_t kImplied = uint64_t{1} << 52;
  const auto exponent = static_cast<int>(bits >> 52 & 0x7ff);
  const uint64_t mantissa = exponent == 0 ? bits & (kImplied - 1) : bits % kImplied | kImplied;
  return std::max(exponent, 1) - 1075 + std::countr_zero(mantissa);
}

bool IsPowerOfTwo(double value) {
  int exponent = 0;
  return std::abs(std::frexp(value, &exponent)) == 0.5;
}

double FloatError(double value) {
  return std::abs(static_cast<double>(static_cast<float>(value)) - value);
}

struct Scale {
  double value;
  double error;  // of its float32
  bool rounds;   // scaled numbers
};

class LogSum {
 public:
  void Add(double exponent, double count) {
    if (exponent > top_) {
      total_ *= std::exp(top_ - exponent);
      top_ = exponent;
    }
    total_ += count * std::exp(exponent - top_);
  }
  double value() const { return top_ + std::log(total_); }

 private:
  double top_ = -std::numeric_limits<double>::infinity();
  double total_ = 0;
};

// A head of a row. Numbers in comments are those of the header.
class HeadTolerance {
 public:
  HeadTolerance(const JobSpec& spec, int64_t head, int64_t position, const RowSource* coordinates,
                std::span<const double> query, const ReferenceRow::Top& top,
                std::span<const double> out)
      : spec_(spec),
        head_(head),
        position_(position),
        coordinates_(coordinates),
        query_(query),
        scale_{.value = spec.Scale(),
               .error = FloatError(spec.Scale()),
               .rounds = !IsPowerOfTwo(spec.Scale()) && spec.Scale() != 0},
        compared_scale_(
            ComparesScores(spec)
                ? Scale{.value = 1, .error = 0, .rounds = ChangesScores(spec) || scale_.rounds}
                : scale_),
        flushes_(spec.dtype == DataType::kBFloat16),
        top_(top),
        out_(out),
        sums_(spec.value_dim) {
    for (const double q : query) grains_.push_back(Grain(q));
  }

  bool judged() const { return judged_; }

  // Called before keys are added. `key` is empty if no token has the greatest score.
  void SetTop(std::span<const double> key) { top_error_ = ErrorOf(ScoreOf(top_.token, key)); }

  void Add(int64_t token, std::span<const double> key, std::span<const double> value) {
    for (const double v : value) judged_ = judged_ && std::isfinite(v);
    AddKey(token, ScoreOf(token, key), value, 1);
  }

  // Adds zero keys or a sink.
  void AddWithoutValue(int64_t token, int64_t count) {
    AddKey(token, ScoreOf(token, {}), {}, static_cast<double>(count));
  }

  void Finish(std::span<double> out, double& lse) const {
    if (keys_ == 0) return;  // exactly 0 and -infinity
    const double roundings = Roundings() * kUnit;
    const double weights = top_.weights;
    const double greatest = top_.product * compared_scale_.value;
    const double share = OutShare(spec_);
    // 7.
    const bool twice = spec_.dtype != DataType::kFloat32 && share != 1 && !IsPowerOfTwo(share);
    for (size_t i = 0; i < out.size(); ++i) {
      const Sums& s = sums_[i];
      const double by_weights = std::min({Ratio(s.a, below_a_), Ratio(s.b, below_b_), s.among});
      const double sizes = s.sizes / weights + by_weights;
      const double lost = flushes_ ? std::min(s.sizes, keys_ * kLeastNormal) : keys_ * kLeastFloat;
      const double off = by_weights + s.missing / weights +
                         roundings * (sizes + std::abs(out_[i] / share)) + lost / weights +
                         s.rounded / weights;
      const double off_share = off * share + 2 * kUnit * std::abs(out_[i]);
      out[i] = off_share + Spacing(spec_.dtype, std::abs(out_[i]) + off_share) * (twice ? 1 : 0.5);
    }
    const double log_sum = std::log(weights);
    const double off = std::max(above_.value() - log_sum, log_sum - below_.value()) + roundings +
                       compared_scale_.error * std::abs(top_.product) +
                       6 * kUnit * (std::abs(greatest) + std::abs(log_sum));
    lse = off + Spacing(DataType::kFloat32, std::abs(greatest + log_sum) + off) / 2;
  }

 private:
  struct Score {
    double value = 0;  // the product, or the score if ComparesScores
    double error = 0;  // e_j
  };

  struct Sums {
    double a = 0, b = 0, among = 0;  // 3.
    double missing = 0;              // 4.
    double sizes = 0;                // sum w_j |v_j|
    double rounded = 0;              // 6.
  };

  static double Ratio(double above, double below) {
    if (above == 0) return 0;
    return below == 0 || std::isinf(above) ? std::numeric_limits<double>::infinity()
                                           : above / below;
  }

  // 1.
  Score ProductOf(std::span<const double> key) {
    double product = 0, sizes = 0, flushed = 0;
    int grain = kNoGrain;
    for (size_t i = 0; i < key.size(); ++i) {
      const double term = query_[i] * key[i];
      const double size = std::abs(term);
      product += term;
      sizes += size;
      if (size == 0) continue;
      grain = std::min(grain, grains_[i] + Grain(key[i]));
      if (flushes_ && std::min(std::abs(query_[i]), std::abs(key[i])) < kLeastNormal) {
        flushed += size;
      }
    }
    constexpr double kMost = kGreatestFloat / 2;
    judged_ = judged_ && sizes <= kMost && sizes * std::abs(scale_.value) * kLog2E <= kMost;
    const double least = flushes_ ? kLeastNormal : kLeastFloat;
    if (sizes == 0) return {};
    if (flushed == 0 && std::ldexp(1.0, grain) >= least && sizes <= std::ldexp(1.0, grain + 24)) {
      return {.value = product};
    }
    const auto dim = static_cast<double>(key.size());
    const double cut = spec_.dtype == DataType::kFloat32 ? 1 : 2;
    return {.value = product, .error = cut * (dim + 2) * kUnit * sizes + dim * least + flushed};
  }

  // 8.
  Score ScoreOf(int64_t token, std::span<const double> key) {
    if (token == ReferenceRow::kSink) {
      const double sink = spec_.sinks[head_];
      return {.value = sink, .error = FloatError(sink)};
    }
    const Score product = ProductOf(key);
    if (!ComparesScores(spec_)) return product;
    Score score{.value = scale_.value * product.value};
    score.error = std::abs(scale_.value) * product.error + scale_.error * std::abs(product.value) +
                  (scale_.rounds ? kUnit * std::abs(score.value) : 0);
    if (spec_.softcap) {
      const double size = std::abs(score.value), capped = Capped(spec_, size);
      score.error = capped - Capped(spec_, size - score.error) + 11 * kUnit * capped +
                    *spec_.softcap * kLeastNormal;
      score.value = std::copysign(capped, score.value);
    }
    if (spec_.alibi && token != ReferenceRow::kZeroKey) {
      const double bias = Bias(spec_, head_, position_, token, coordinates_);
      judged_ = judged_ && (std::abs(score.value) + std::abs(bias)) * kLog2E <= kGreatestFloat / 2;
      score.value -= bias;
      const bool measures = BiasAxes(spec_) > 0;
      score.error += kUnit * ((measures ? 6 : 3) * std::abs(bias) + std::abs(score.value));
      if (measures) score.error += kLeastDistance * std::abs(spec_.alibi->slopes[head_]);
    }
    return score;
  }

  // 2.
  double ErrorOf(const Score& score) const {
    const auto& [scale, scale_error, rounds] = compared_scale_;
    const double behind = std::abs(score.value - top_.product);
    return std::abs(scale) * score.error +
           (rounds ? 2 * kUnit * std::abs(scale * score.value) : 0) + scale_error * behind +
           4 * kUnit * std::abs(scale) * behind + 4 * kUnit;
  }

  void AddKey(int64_t token, const Score& score, std::span<const double> value, double count) {
    keys_ += count;
    const double error = ErrorOf(score);
    const double exponent = std::min(0.0, (score.value - top_.product) * compared_scale_.value);
    const double weight = count * std::exp(exponent);
    const double of_both = error + top_error_;
    double apart = count;  // of the key t
    if (token == top_.token && !std::exchange(top_seen_, true)) {
      below_b_ += 1;
      apart -= 1;
    }
    const double more_a = count * std::exp(exponent + error) - weight;
    const double more_b =
        apart == 0 ? 0 : apart * (std::exp(exponent + of_both) - std::exp(exponent));
    below_a_ += count * std::exp(exponent - error);
    below_b_ += apart * std::exp(exponent - of_both);
    above_.Add(exponent + error, count);
    below_.Add(exponent - error, count);
    const double rounded = RoundedBy(weight, count);
    const bool has_weight =
        exponent + of_both >= kNoWeightExponent || top_.token == ReferenceRow::kSink;
    const bool missing = exponent < kLeastExponent;
    const double share = OutShare(spec_);
    for (size_t i = 0; i < sums_.size(); ++i) {
      Sums& s = sums_[i];
      const double v = value.empty() ? 0 : value[i];
      const double size = std::abs(v);
      s.sizes += weight * size;
      s.rounded += rounded * size;
      const double apart_by = std::abs(v - out_[i] / share);
      if (apart_by == 0) continue;
      s.a += more_a * apart_by;
      if (more_b != 0) s.b += more_b * apart_by;
      if (has_weight) s.among = std::max(s.among, apart_by);
      if (missing) s.missing += weight * apart_by;
    }
  }

  // 6.
  double RoundedBy(double weight, double count) const {
    switch (spec_.dtype) {
      case DataType::kFloat32:
        return 0;
      case DataType::kBFloat16:
        return 0x1p-8 * weight;
      case DataType::kFloat16:
        return std::max(0x1p-11 * weight, std::min(weight, 0x1p-25 * count));
    }
    return 0;
  }

  // m of 5.
  double Roundings() const {
    const bool narrow = spec_.dtype != DataType::kFloat32;
    return std::min((narrow ? 2 : 1) * keys_ + 16, 256 + keys_ / (narrow ? 8 : 1024));
  }

  const JobSpec& spec_;
  const int64_t head_, position_;  // position_: SeenKeys::position()
  const RowSource* const coordinates_;
  const std::span<const double> query_;
  const Scale scale_, compared_scale_;
  const bool flushes_;
  const ReferenceRow::Top top_;
  const std::span<const double> out_;
  std::vector<int> grains_;  // of the query's numbers
  double top_error_ = 0;     // h_t
  bool top_seen_ = false;
  bool judged_ = true;
  double keys_ = 0;
  double below_a_ = 0, below_b_ = 0;
  LogSum above_, below_;
  std::vector<Sums> sums_;  // [value_dim]
};

bool AllFinite(std::span<const double> values) {
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

}  // namespace

bool RowTolerance::AllJudged() const {
  return std::ranges::find(judged, uint8_t{0}) == judged.end();
}

double Spacing(DataType dtype, double value) {
  struct Format {
    int digits, least_exponent;
  };
  const Format format = dtype == DataType::kFloat32    ? Format{24, -126}
                        : dtype == DataType::kBFloat16 ? Format{8, -126}
                                                       : Format{11, -14};
  const int exponent =
      value == 0 ? format.least_exponent : std::max(std::ilogb(value), format.least_exponent);
  return std::ldexp(1.0, exponent - format.digits + 1);
}

RowTolerance ToleranceOfRow(const JobSpec& spec, const Permutation& order, int64_t token,
                            const RowSource& q, const RowSource& k, const RowSource& v,
                            const RowSource* coordinates, const ReferenceRow& row) {
  RowTolerance tolerance{.out = std::vector<double>(spec.heads * spec.value_dim),
                         .lse = std::vector<double>(spec.heads)};
  const SeenKeys seen(spec, order, token);
  std::vector<double> query(spec.head_dim), key(spec.head_dim), value(spec.value_dim);
  for (int64_t head = 0; head < spec.heads; ++head) {
    const int64_t kv_head = head * spec.kv_heads / spec.heads;
    q.Read(token, head * spec.head_dim, query);
    const ReferenceRow::Top& top = row.top[head];
    HeadTolerance of_head(spec, head, seen.position(), coordinates, query, top,
                          std::span(row.out).subspan(head * spec.value_dim, spec.value_dim));
    bool judged = AllFinite(query) && std::isfinite(top.weights);
    if (judged && top.token >= 0) k.Read(top.token, kv_head * spec.head_dim, key);
    if (judged) of_head.SetTop(top.token >= 0 ? std::span(key) : std::span<double>());
    for (const int64_t branch : BranchesOf(spec, head)) {
      if (!judged) break;
      const int64_t zeros = seen.Visit(branch, head, [&](int64_t seen_token) {
        if (!judged) return;
        k.Read(seen_token, kv_head * spec.head_dim, key);
        v.Read(seen_token, kv_head * spec.value_dim, value);
        judged = AllFinite(key);
        if (judged) of_head.Add(seen_token, key, value);
        judged = judged && of_head.judged();
      });
      if (zeros > 0 && judged) of_head.AddWithoutValue(ReferenceRow::kZeroKey, zeros);
    }
    if (!spec.sinks.empty() && judged) of_head.AddWithoutValue(ReferenceRow::kSink, 1);
    tolerance.judged.push_back(judged ? 1 : 0);
    if (judged) {
      of_head.Finish(std::span(tolerance.out).subspan(head * spec.value_dim, spec.value_dim),
                     tolerance.lse[head]);
    }
  }
  return tolerance;
}

}  // namespace hilbert_ring

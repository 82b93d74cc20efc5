#include "engine/reference/attention_reference.h"

#include <cmath>
#include <limits>
#include <utility>

#include "engine/order/permutation.h"
#include "engine/reference/seen_keys.h"

namespace hilbert_ring {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kNothing = -kInfinity;

// A softmax of keys that come one by one. A score of NaN or +infinity makes it NaN; one of
// -infinity has weight 0. Products are subtracted before they are scaled, so that large ones lose
// no digits.
class Softmax {
 public:
  Softmax(double scale, int64_t width) : scale_(scale), sum_(width, 0.0) {}

  // Adds `count` keys with this product and value; null: value 0.
  void Add(double product, const double* value, int64_t token, double count = 1) {
    const double score = product * scale_;
    if (std::isnan(score) || score == kInfinity) is_nan_ = true;
    if (is_nan_) return;
    if (score > top_) {
      const double shrink = std::isinf(top_) ? 0.0 : std::exp((top_product_ - product) * scale_);
      for (double& s : sum_) s *= shrink;
      total_ *= shrink;
      top_ = score;
      top_product_ = product;
      top_token_ = token;
    }
    const double weight =
        score == kNothing ? 0 : count * std::exp((product - top_product_) * scale_);
    total_ += weight;
    if (value == nullptr) return;
    for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += weight * value[i];
  }

  // Adds a softmax with the same scale. A part without weight leaves no trace, even if not finite.
  void Merge(const Softmax& part) {
    is_nan_ = is_nan_ || part.is_nan_;
    if (is_nan_ || part.total_ == 0) return;
    if (part.top_ > top_ || total_ == 0) {
      Softmax rest = part;
      std::swap(*this, rest);
      Merge(rest);
      return;
    }
    const double weight = std::exp((part.top_product_ - top_product_) * scale_);
    if (weight == 0) return;
    total_ += weight * part.total_;
    for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += weight * part.sum_[i];
  }

  double Lse() const { return is_nan_ ? kNan : total_ > 0 ? top_ + std::log(total_) : kNothing; }
  double Out(int64_t i) const { return is_nan_ ? kNan : total_ > 0 ? sum_[i] / total_ : 0.0; }
  ReferenceRow::Top Top() const {
    return {.product = top_product_, .token = top_token_, .weights = is_nan_ ? kNan : total_};
  }

 private:
  double scale_;
  std::vector<double> sum_;
  double total_ = 0;
  double top_ = kNothing, top_product_ = 0;
  int64_t top_token_ = ReferenceRow::kZeroKey;
  bool is_nan_ = false;
};

class RowReference {
 public:
  RowReference(const JobSpec& spec, const Permutation& order, int64_t token, const RowSource& q,
               const RowSource& k, const RowSource& v, const RowSource* coordinates)
      : spec_(spec),
        compared_scale_(ComparesScores(spec) ? 1 : spec.Scale()),
        seen_(spec, order, token),
        k_(k),
        v_(v),
        coordinates_(coordinates),
        q_row_(spec.heads * spec.head_dim),
        key_(spec.head_dim),
        value_(spec.value_dim) {
    q.Read(token, 0, q_row_);
  }

  ReferenceRow Compute() {
    result_.out.assign(spec_.heads * spec_.value_dim, 0.0);
    for (int64_t head = 0; head < spec_.heads; ++head) ComputeHead(head);
    return std::move(result_);
  }

 private:
  void ComputeHead(int64_t head) {
    // Branches are merged by their denominators.
    Softmax merged(compared_scale_, spec_.value_dim);
    for (const int64_t branch : BranchesOf(spec_, head)) merged.Merge(AttendBranch(branch, head));
    if (!spec_.sinks.empty()) {
      Softmax sink(compared_scale_, spec_.value_dim);
      sink.Add(spec_.sinks[head], nullptr, ReferenceRow::kSink);
      merged.Merge(sink);
    }
    const double share = OutShare(spec_);
    for (int64_t i = 0; i < spec_.value_dim; ++i) {
      result_.out[head * spec_.value_dim + i] = merged.Out(i) * share;
    }
    result_.lse.push_back(merged.Lse());
    result_.top.push_back(merged.Top());
  }

  Softmax AttendBranch(int64_t branch, int64_t head) {
    Softmax softmax(compared_scale_, spec_.value_dim);
    const int64_t kv_head = head * spec_.kv_heads / spec_.heads;
    const int64_t zeros = seen_.Visit(branch, head, [&](int64_t token) {
      k_.Read(token, kv_head * spec_.head_dim, key_);
      v_.Read(token, kv_head * spec_.value_dim, value_);
      double product = 0;
      for (int64_t i = 0; i < spec_.head_dim; ++i) {
        product += q_row_[head * spec_.head_dim + i] * key_[i];
      }
      softmax.Add(ComparesScores(spec_) ? Score(head, token, product) : product, value_.data(),
                  token);
    });
    if (zeros > 0) softmax.Add(0, nullptr, ReferenceRow::kZeroKey, static_cast<double>(zeros));
    return softmax;
  }

  double Score(int64_t head, int64_t token, double product) const {
    return Capped(spec_, product * spec_.Scale()) -
           Bias(spec_, head, seen_.position(), token, coordinates_);
  }

  const JobSpec& spec_;
  const double compared_scale_;
  const SeenKeys seen_;
  const RowSource& k_;
  const RowSource& v_;
  const RowSource* const coordinates_;
  std::vector<double> q_row_, key_, value_;
  ReferenceRow result_;
};

}  // namespace

double Capped(const JobSpec& spec, double score) {
  return spec.softcap ? *spec.softcap * std::tanh(score / *spec.softcap) : score;
}

double Bias(const JobSpec& spec, int64_t head, int64_t query, int64_t key,
            const RowSource* coordinates) {
  if (!spec.alibi) return 0;
  auto distance = static_cast<double>(std::abs(key - query));
  if (const int axes = BiasAxes(spec); axes > 0) {
    double from[3] = {}, to[3] = {};
    coordinates->Read(query, 0, std::span(from, axes));
    coordinates->Read(key, 0, std::span(to, axes));
    distance = std::hypot(to[0] - from[0], to[1] - from[1], to[2] - from[2]);
    if (std::isnan(distance)) distance = 0;
  }
  return spec.alibi->slopes[head] * distance;
}

double OutShare(const JobSpec& spec) {
  const bool averages = spec.mixing == Mixing::kHeadGroups && spec.average_groups;
  return averages ? 1.0 / static_cast<double>(spec.branches.size()) : 1.0;
}

ReferenceRow ReferenceAttentionRow(const JobSpec& spec, const Permutation& order, int64_t token,
                                   const RowSource& q, const RowSource& k, const RowSource& v,
                                   const RowSource* coordinates) {
  return RowReference(spec, order, token, q, k, v, coordinates).Compute();
}

}  // namespace hilbert_ring

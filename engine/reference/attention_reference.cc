#include "engine/reference/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/order/permutation.h"

namespace hilbert_ring {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kNothing = -kInfinity;

// Slots are asked for in runs of so many, so that no segment is ever listed whole.
constexpr int64_t kRun = 4096;

// Softmax of scores that come one by one; rescaled when a larger one comes. A score of NaN or
// +infinity makes it NaN, one of -infinity has weight 0.
class Softmax {
 public:
  explicit Softmax(int64_t width) : sum_(width, 0.0) {}

  // `count` keys of that score and value; null: of value 0.
  void Add(double score, const double* value, double count = 1) {
    if (std::isnan(score) || score == kInfinity) is_nan_ = true;
    if (is_nan_) return;
    if (score > top_) {
      const double shrink = std::exp(top_ - score);
      for (double& s : sum_) s *= shrink;
      total_ *= shrink;
      top_ = score;
    }
    const double weight = score == kNothing ? 0 : count * std::exp(score - top_);
    total_ += weight;
    if (value == nullptr) return;
    for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += weight * value[i];
  }

  double Lse() const { return is_nan_ ? kNan : total_ > 0 ? top_ + std::log(total_) : kNothing; }
  double Out(int64_t i) const { return is_nan_ ? kNan : total_ > 0 ? sum_[i] / total_ : 0.0; }

 private:
  std::vector<double> sum_;
  double total_ = 0;
  double top_ = kNothing;
  bool is_nan_ = false;
};

int64_t OffsetOf(const JobSpec& spec, int64_t branch, int64_t head) {
  const int64_t dilation = spec.branches[branch].dilation;
  if (spec.mixing == Mixing::kHeadGroups) return branch % dilation;
  return head / ((spec.heads - 1) / dilation + 1);
}

// Branches that a head runs.
std::vector<int64_t> BranchesOf(const JobSpec& spec, int64_t head) {
  const auto branches = static_cast<int64_t>(spec.branches.size());
  std::vector<int64_t> own;
  int64_t begin = 0;
  for (int64_t i = 0; i < branches; ++i) {
    const int64_t size = spec.heads / branches + (i < spec.heads % branches ? 1 : 0);
    if (spec.mixing == Mixing::kLse || (head >= begin && head < begin + size)) own.push_back(i);
    begin += size;
  }
  return own;
}

// One token against what it sees.
class RowReference {
 public:
  RowReference(const JobSpec& spec, const Permutation& order, int64_t token, const RowSource& q,
               const RowSource& k, const RowSource& v)
      : spec_(spec),
        order_(order),
        token_(token),
        k_(k),
        v_(v),
        q_row_(spec.heads * spec.head_dim),
        key_(spec.head_dim),
        value_(spec.value_dim) {
    q.Read(token, 0, q_row_);
    slot_ = token;
    if (spec.ordering && spec.ordering->scope == OrderScope::kQkv) {
      order.Slots(token, std::span<int64_t>(&slot_, 1));
    }
    for (const Sequence& sequence : Sequences(spec)) {
      if (slot_ >= sequence.begin && slot_ < sequence.begin + sequence.length) sequence_ = sequence;
    }
  }

  ReferenceRow Compute() {
    result_.out.assign(spec_.heads * spec_.value_dim, 0.0);
    result_.lse.assign(spec_.heads, kNothing);
    for (int64_t head = 0; head < spec_.heads; ++head) ComputeHead(head);
    return result_;
  }

 private:
  void ComputeHead(int64_t head) {
    // Branches are merged by their log-sum-exps: a softmax over branches of their softmaxes.
    std::vector<Softmax> parts;
    double top = kNothing;
    bool is_nan = false;
    for (const int64_t branch : BranchesOf(spec_, head)) {
      parts.push_back(AttendBranch(branch, head));
      top = std::max(top, parts.back().Lse());
      is_nan = is_nan || std::isnan(parts.back().Lse());
    }
    double* const out = result_.out.data() + head * spec_.value_dim;
    if (is_nan) {
      std::fill_n(out, spec_.value_dim, kNan);
      result_.lse[head] = kNan;
      return;
    }
    if (top == kNothing) return;
    const bool averages = spec_.mixing == Mixing::kHeadGroups && spec_.average_groups;
    const double share = averages ? 1.0 / static_cast<double>(spec_.branches.size()) : 1.0;
    double total = 0;
    for (const Softmax& part : parts) {
      const double weight = std::exp(part.Lse() - top);
      total += weight;
      // What has no weight leaves no trace, whatever it is.
      if (weight == 0) continue;
      for (int64_t i = 0; i < spec_.value_dim; ++i) out[i] += weight * part.Out(i);
    }
    for (int64_t i = 0; i < spec_.value_dim; ++i) out[i] *= share / total;
    result_.lse[head] = top + std::log(total);
  }

  Softmax AttendBranch(int64_t branch, int64_t head) {
    Softmax softmax(spec_.value_dim);
    const Branch& pattern = spec_.branches[branch];
    const int64_t length = std::min(pattern.segment, sequence_.length);
    const int64_t place = slot_ - sequence_.begin;
    const int64_t start = place / length * length;
    const int64_t end = std::min(start + length, sequence_.length);
    const int64_t offset = OffsetOf(spec_, branch, head);
    const int64_t ahead = place - start - offset;
    if (ahead < 0 || ahead % pattern.dilation != 0) return softmax;
    int64_t selected = 0;
    std::vector<int64_t> tokens;
    int64_t run_begin = -1;
    for (int64_t row = start + offset; row < end; ++selected) {
      if (run_begin < 0 || row >= run_begin + static_cast<int64_t>(tokens.size())) {
        run_begin = row;
        tokens.resize(std::min(pattern.dilation < kRun ? kRun : 1, end - row));
        order_.Tokens(sequence_.begin + row, tokens);
      }
      AddKey(tokens[row - run_begin], head, softmax);
      if (pattern.dilation >= end - row) {
        ++selected;
        break;
      }
      row += pattern.dilation;
    }
    if (spec_.tail == Tail::kZero && !spec_.causal) {
      const int64_t zeros = (length - 1) / pattern.dilation + 1 - selected;
      if (zeros > 0) softmax.Add(0, nullptr, static_cast<double>(zeros));
    }
    return softmax;
  }

  void AddKey(int64_t token, int64_t head, Softmax& softmax) {
    if (spec_.causal && token > token_) return;
    const int64_t kv_head = head * spec_.kv_heads / spec_.heads;
    k_.Read(token, kv_head * spec_.head_dim, key_);
    v_.Read(token, kv_head * spec_.value_dim, value_);
    double score = 0;
    for (int64_t i = 0; i < spec_.head_dim; ++i) {
      score += q_row_[head * spec_.head_dim + i] * key_[i];
    }
    score *= spec_.Scale();
    result_.max_abs_score = std::max(result_.max_abs_score, std::abs(score));
    for (const double value : value_) {
      result_.max_abs_value = std::max(result_.max_abs_value, std::abs(value));
    }
    softmax.Add(score, value_.data());
  }

  const JobSpec& spec_;
  const Permutation& order_;
  const int64_t token_;
  const RowSource& k_;
  const RowSource& v_;
  std::vector<double> q_row_, key_, value_;
  int64_t slot_ = 0;
  Sequence sequence_;
  ReferenceRow result_;
};

class SpanSource final : public RowSource {
 public:
  SpanSource(std::span<const double> values, int64_t width) : values_(values), width_(width) {}
  void Read(int64_t token, int64_t first, std::span<double> values) const override {
    std::copy_n(values_.begin() + token * width_ + first, values.size(), values.begin());
  }

 private:
  std::span<const double> values_;
  int64_t width_;
};

absl::Status CheckSize(const char* name, std::span<const double> values, int64_t expected) {
  if (static_cast<int64_t>(values.size()) == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " has ", values.size(), " values, but must have ", expected));
}

}  // namespace

ReferenceRow ReferenceAttentionRow(const JobSpec& spec, const Permutation& order, int64_t token,
                                   const RowSource& q, const RowSource& k, const RowSource& v) {
  return RowReference(spec, order, token, q, k, v).Compute();
}

absl::StatusOr<ReferenceResult> ReferenceAttention(const JobSpec& spec, std::span<const double> q,
                                                   std::span<const double> k,
                                                   std::span<const double> v,
                                                   std::span<const int64_t> coords) {
  if (absl::Status status = Validate(spec); !status.ok()) return status;
  const int64_t q_width = spec.heads * spec.head_dim;
  const int64_t k_width = spec.kv_heads * spec.head_dim;
  const int64_t v_width = spec.kv_heads * spec.value_dim;
  if (absl::Status s = CheckSize("q", q, spec.tokens * q_width); !s.ok()) return s;
  if (absl::Status s = CheckSize("k", k, spec.tokens * k_width); !s.ok()) return s;
  if (absl::Status s = CheckSize("v", v, spec.tokens * v_width); !s.ok()) return s;
  auto order = Permutation::Make(spec, coords);
  if (!order.ok()) return order.status();
  const SpanSource q_rows(q, q_width);
  const SpanSource k_rows(k, k_width);
  const SpanSource v_rows(v, v_width);
  ReferenceResult result;
  for (int64_t token = 0; token < spec.tokens; ++token) {
    const ReferenceRow row = ReferenceAttentionRow(spec, **order, token, q_rows, k_rows, v_rows);
    result.out.insert(result.out.end(), row.out.begin(), row.out.end());
    result.lse.insert(result.lse.end(), row.lse.begin(), row.lse.end());
  }
  return result;
}

}  // namespace hilbert_ring

#include "engine/reference/encoder_reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/reference/seen_keys.h"
#include "engine/spec/numbers.h"

namespace hilbert_ring {
namespace {

enum Linear { kQ, kK, kV, kOut, kFc1, kFc2 };
constexpr const char* kLinearNames[] = {"self_attn.q_proj", "self_attn.k_proj",
                                        "self_attn.v_proj", "self_attn.out_proj",
                                        "ffn.fc1",          "ffn.fc2"};

// Eight sums side by side, so that the compiler takes several numbers at once.
template <typename A, typename B>
double Dot(std::span<const A> a, std::span<const B> b) {
  std::array<double, 8> sums{};
  size_t i = 0;
  for (; i + 8 <= a.size(); i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) {
      sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    }
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  for (; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// to += factor * from
template <typename From>
void AddTo(std::span<double> to, double factor, std::span<const From> from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += factor * static_cast<double>(from[i]);
}

double RootMeanSquare(std::span<const double> row) {
  return row.empty() ? 0 : std::sqrt(Dot(row, row) / static_cast<double>(row.size()));
}

struct Moments {
  double mean = 0, inverse = 0;  // of the standard deviation
};

Moments MomentsOf(std::span<const double> row, double epsilon) {
  double mean = 0, variance = 0;
  const auto dim = static_cast<double>(row.size());
  for (const double number : row) mean += number / dim;
  for (const double number : row) variance += (number - mean) * (number - mean) / dim;
  return {.mean = mean, .inverse = 1 / std::sqrt(variance + epsilon)};
}

void AddAxis(double cell, std::span<double> half) {
  const size_t count = half.size() / 2;
  for (size_t i = 0; i < count; ++i) {
    const double angle =
        cell * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(count));
    half[i] += std::sin(angle);
    half[count + i] += std::cos(angle);
  }
}

double Gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

// A head that sees a key; of a branch, so that a pair may come several times.
struct Seen {
  int64_t token = 0;
  int64_t head = 0;
  double score = 0;
};

}  // namespace

void MoveAtRandom(std::span<double> row, double by, std::mt19937_64& random) {
  if (by == 0) return;
  const double size = RootMeanSquare(row);
  for (double& number : row) {
    const double away = by * (std::abs(number) + size);
    number += random() % 2 == 0 ? away : -away;
  }
}

Rounding Rounding::Of(DataType compute) {
  constexpr double kFloat32 = 0x1p-21;
  return {.product = compute == DataType::kFloat32 ? kFloat32 : 0x1p-9, .float32 = kFloat32};
}

bool TwiceComputed::finite() const {
  const auto is_finite = [](double number) { return std::isfinite(number); };
  return std::ranges::all_of(exact, is_finite) && std::ranges::all_of(moved, is_finite);
}

double Spread(std::span<const TwiceComputed> rows) {
  double squares = 0;
  int64_t numbers = 0;
  for (const TwiceComputed& row : rows) {
    for (size_t i = 0; i < row.exact.size(); ++i) {
      const double apart = row.moved[i] - row.exact[i];
      if (!std::isfinite(apart)) continue;  // the row is not judged
      squares += apart * apart;
      ++numbers;
    }
  }
  return numbers == 0 ? 0 : std::sqrt(squares / static_cast<double>(numbers));
}

TwiceComputed::Worst TwiceComputed::Compare(std::span<const float> actual, double spread) const {
  std::vector<double> apart(exact.size());
  double greatest = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    apart[i] = std::abs(moved[i] - exact[i]);
    greatest = std::max(greatest, std::abs(exact[i]));
  }
  const double of_row = std::max(spread, RootMeanSquare(apart));
  Worst worst{.excess = -1};
  for (size_t i = 0; i < actual.size(); ++i) {
    const double tolerance = kMargin * std::max(of_row, apart[i]) + 0x1p-23 * greatest;
    const double off = std::abs(static_cast<double>(actual[i]) - exact[i]);
    const double excess = off == 0 ? 0
                          : std::isfinite(off) && tolerance > 0
                              ? off / tolerance
                              : std::numeric_limits<double>::infinity();
    if (excess <= worst.excess) continue;
    worst = {.dim = static_cast<int64_t>(i),
             .actual = actual[i],
             .expected = exact[i],
             .tolerance = tolerance,
             .excess = excess};
  }
  return worst;
}

absl::StatusOr<ReferenceLinear> ReferenceLinear::Load(const EncoderFolder& folder,
                                                      const std::string& name) {
  ReferenceLinear linear;
  ASSIGN_OR_RETURN(linear.weight_, folder.Floats(name + ".weight"));
  ASSIGN_OR_RETURN(linear.bias_, folder.Floats(name + ".bias"));
  return linear;
}

std::vector<double> ReferenceLinear::operator()(std::span<const double> x) const {
  std::vector<double> y(bias_.begin(), bias_.end());
  for (int64_t i = 0; i < out(); ++i) y[i] += Dot(row(i), x);
  return y;
}

ReferenceLinear ReferenceLinear::RoundedTo(DataType compute) const {
  ReferenceLinear rounded = *this;
  if (compute == DataType::kFloat32) return rounded;
  for (float& weight : rounded.weight_) weight = BFloat16ToFloat(FloatToBFloat16(weight));
  return rounded;
}

absl::StatusOr<LayerNorm> LoadReferenceNorm(const EncoderFolder& folder, const std::string& name,
                                            double epsilon) {
  ASSIGN_OR_RETURN(auto weight, folder.Floats(name + ".weight"));
  ASSIGN_OR_RETURN(auto bias, folder.Floats(name + ".bias"));
  return LayerNorm(std::move(weight), std::move(bias), epsilon);
}

std::vector<double> ReferenceNorm(const LayerNorm& norm, std::span<const double> row) {
  const NormView view = norm.view();
  const Moments moments = MomentsOf(row, view.epsilon);
  std::vector<double> to(row.size());
  for (size_t i = 0; i < row.size(); ++i) {
    to[i] = (row[i] - moments.mean) * moments.inverse * view.weight[i] + view.bias[i];
  }
  return to;
}

absl::StatusOr<ReferenceInput> ReferenceInput::Load(const EncoderFolder& folder, DataType compute) {
  ReferenceInput input;
  input.config_ = folder.config();
  input.rounding_ = Rounding::Of(compute);
  if (input.config_.input_dim > 0) {
    ASSIGN_OR_RETURN(input.projection_, ReferenceLinear::Load(folder, "patch_embed.proj"));
    input.rounded_projection_ = input.projection_->RoundedTo(compute);
  }
  if (input.config_.class_token) {
    ASSIGN_OR_RETURN(input.class_token_, folder.Floats("cls_token"));
  }
  return input;
}

TwiceComputed ReferenceInput::RowOf(std::span<const double> tile, const double* coords) {
  TwiceComputed row;
  row.exact = projection_ ? (*projection_)(tile) : std::vector<double>(tile.begin(), tile.end());
  row.moved = rounded_projection_ ? (*rounded_projection_)(tile) : row.exact;
  if (projection_) MoveAtRandom(row.moved, rounding_.product, random_);
  for (std::vector<double>* numbers : {&row.exact, &row.moved}) {
    if (!config_.position) continue;
    const auto size = static_cast<double>(config_.position->tile_size);
    const std::span<double> all(*numbers);
    AddAxis(std::floor(coords[1] / size), all.first(all.size() / 2));
    AddAxis(std::floor(coords[0] / size), all.subspan(all.size() / 2));
  }
  MoveAtRandom(row.moved, rounding_.float32, random_);
  return row;
}

TwiceComputed ReferenceInput::ClassToken() const {
  const std::vector<double> row(class_token_.begin(), class_token_.end());
  return {.exact = row, .moved = row};
}

absl::StatusOr<ReferenceLayer> ReferenceLayer::Load(const EncoderFolder& folder, int64_t layer,
                                                    DataType compute) {
  const std::string name = absl::StrCat("encoder.layers.", layer - 1, ".");
  const double epsilon = folder.config().layer_norm_eps;
  ReferenceLayer made;
  made.width_ = folder.config().embed_dim;
  made.rounding_ = Rounding::Of(compute);
  const auto norm = [&](LayerNorm& to, const char* of) {
    ASSIGN_OR_RETURN(to, LoadReferenceNorm(folder, name + of, epsilon));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(norm(made.attention_norm_, "self_attn_layer_norm"));
  RETURN_IF_ERROR(norm(made.inner_attention_norm_, "self_attn.inner_attn_ln"));
  RETURN_IF_ERROR(norm(made.ffn_norm_, "final_layer_norm"));
  RETURN_IF_ERROR(norm(made.inner_ffn_norm_, "ffn.ffn_layernorm"));
  for (const char* linear : kLinearNames) {
    ASSIGN_OR_RETURN(auto loaded, ReferenceLinear::Load(folder, name + linear));
    if (compute != DataType::kFloat32) made.rounded_.push_back(loaded.RoundedTo(compute));
    made.linear_.push_back(std::move(loaded));
  }
  return made;
}

// A head's query against rows before the norm: the score of a row x with mean m and 1 / deviation r
// is r (key . x - m sum) + rest.
struct ReferenceLayer::HeadQuery {
  std::vector<double> key;  // [width]
  double sum = 0, rest = 0;
};

ReferenceLayer::HeadQuery ReferenceLayer::QueryOf(int64_t head, std::span<const double> q,
                                                  const ReferenceLinear& k) const {
  const NormView norm = attention_norm_.view();
  HeadQuery query{.key = std::vector<double>(static_cast<size_t>(width_))};
  const auto dim = static_cast<int64_t>(q.size());
  for (int64_t i = 0; i < dim; ++i) {
    const int64_t row = head * dim + i;
    AddTo(std::span<double>(query.key), q[i], k.row(row));
    query.rest += q[i] * k.bias()[row];
  }
  for (int64_t i = 0; i < width_; ++i) {
    query.rest += query.key[i] * norm.bias[i];
    query.key[i] *= norm.weight[i];
    query.sum += query.key[i];
  }
  return query;
}

std::vector<double> ReferenceLayer::Attend(const JobSpec& attention, const Permutation& order,
                                           int64_t token, const RowSource& rows,
                                           std::span<const double> x,
                                           const Arithmetic& arithmetic) {
  const auto& [linear, rounding] = arithmetic;
  const int64_t heads = attention.heads, dim = attention.head_dim;
  std::vector<double> q = linear[kQ](ReferenceNorm(attention_norm_, x));
  MoveAtRandom(q, rounding.product, random_);
  std::vector<HeadQuery> queries;
  std::vector<Seen> seen;
  std::vector<double> zeros(static_cast<size_t>(heads));
  const SeenKeys keys(attention, order, token);
  for (int64_t head = 0; head < heads; ++head) {
    queries.push_back(QueryOf(head, std::span(q).subspan(head * dim, dim), linear[kK]));
    for (const int64_t branch : BranchesOf(attention, head)) {
      zeros[head] += static_cast<double>(keys.Visit(
          branch, head, [&](int64_t key) { seen.push_back({.token = key, .head = head}); }));
    }
  }
  std::ranges::sort(seen, {}, &Seen::token);

  // Each row is read once for its scores and once for its values.
  std::vector<double> row(static_cast<size_t>(width_));
  Moments moments;
  const auto for_each = [&](const auto& visit) {
    int64_t there = -1;
    for (Seen& pair : seen) {
      if (pair.token != there) {
        rows.Read(there = pair.token, 0, row);
        moments = MomentsOf(row, attention_norm_.view().epsilon);
      }
      visit(pair);
    }
  };
  std::vector<double> squares(static_cast<size_t>(heads)), counts(static_cast<size_t>(heads));
  for_each([&](Seen& pair) {
    const HeadQuery& query = queries[pair.head];
    pair.score =
        attention.Scale() *
        (moments.inverse * (Dot(std::span<const double>(query.key), std::span<const double>(row)) -
                            moments.mean * query.sum) +
         query.rest);
    squares[pair.head] += pair.score * pair.score;
    counts[pair.head] += 1;
  });
  std::vector<double> greatest(static_cast<size_t>(heads));
  std::normal_distribution<double> normal;
  for (int64_t head = 0; head < heads; ++head) {
    greatest[head] = zeros[head] > 0 ? 0 : -std::numeric_limits<double>::infinity();
  }
  for (Seen& pair : seen) {
    if (rounding.product > 0) {
      const double size = std::abs(pair.score) + std::sqrt(squares[pair.head] / counts[pair.head]);
      pair.score += rounding.product * size * normal(random_);
    }
    greatest[pair.head] = std::max(greatest[pair.head], pair.score);
  }
  std::vector<double> sums(static_cast<size_t>(heads * width_));  // of weighted rows
  std::vector<double> weights(static_cast<size_t>(heads)), means(static_cast<size_t>(heads));
  for_each([&](const Seen& pair) {
    const double weight = std::exp(pair.score - greatest[pair.head]);
    weights[pair.head] += weight;
    means[pair.head] += weight * moments.inverse * moments.mean;
    AddTo(std::span(sums).subspan(pair.head * width_, width_), weight * moments.inverse,
          std::span<const double>(row));
  });
  const NormView norm = attention_norm_.view();
  std::vector<double> out(static_cast<size_t>(heads * dim));
  for (int64_t head = 0; head < heads; ++head) {
    const double zero = zeros[head] > 0 ? zeros[head] * std::exp(-greatest[head]) : 0;
    const double total = weights[head] + zero;
    if (total == 0) continue;  // no branch selects the row
    const std::span<double> sum = std::span(sums).subspan(head * width_, width_);
    for (int64_t i = 0; i < width_; ++i) {
      sum[i] = norm.weight[i] * (sum[i] - means[head]) + norm.bias[i] * weights[head];
    }
    for (int64_t i = head * dim; i < (head + 1) * dim; ++i) {
      const double value = Dot(linear[kV].row(i), std::span<const double>(sum)) +
                           static_cast<double>(linear[kV].bias()[i]) * weights[head];
      out[i] = value / total;
    }
  }
  MoveAtRandom(out, rounding.product, random_);
  return out;
}

std::vector<double> ReferenceLayer::Row(const JobSpec& attention, const Permutation& order,
                                        int64_t token, const RowSource& rows,
                                        const Arithmetic& arithmetic) {
  const Rounding& rounding = arithmetic.rounding;
  const auto apply = [&](Linear linear, std::span<const double> to) {
    std::vector<double> result = arithmetic.linear[linear](to);
    MoveAtRandom(result, rounding.product, random_);
    return result;
  };
  const auto normed = [&](const LayerNorm& norm, std::span<const double> row) {
    std::vector<double> result = ReferenceNorm(norm, row);
    MoveAtRandom(result, rounding.float32, random_);
    return result;
  };
  const auto add = [&](std::span<double> x, std::span<const double> more) {
    AddTo(x, 1, more);
    MoveAtRandom(x, rounding.float32, random_);
  };
  std::vector<double> x(static_cast<size_t>(width_));
  rows.Read(token, 0, x);
  const std::vector<double> seen = Attend(attention, order, token, rows, x, arithmetic);
  add(x, apply(kOut, normed(inner_attention_norm_, seen)));
  std::vector<double> wide = apply(kFc1, normed(ffn_norm_, x));
  for (double& number : wide) number = Gelu(number);
  add(x, apply(kFc2, normed(inner_ffn_norm_, wide)));
  return x;
}

std::vector<double> ReferenceLayer::Exact(const JobSpec& attention, const Permutation& order,
                                          int64_t token, const RowSource& rows) {
  return Row(attention, order, token, rows, {.linear = linear_, .rounding = {}});
}

std::vector<double> ReferenceLayer::Moved(const JobSpec& attention, const Permutation& order,
                                          int64_t token, const RowSource& rows) {
  return Row(attention, order, token, rows,
             {.linear = rounded_.empty() ? linear_ : rounded_, .rounding = rounding_});
}

}  // namespace hilbert_ring

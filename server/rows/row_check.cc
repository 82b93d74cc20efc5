#include "server/rows/row_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "engine/reference/attention_reference.h"
#include "engine/reference/sample_tokens.h"
#include "engine/spec/numbers.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

class PlacedRows final : public RowSource {
 public:
  PlacedRows(const JobSpec& spec, v1::Tensor tensor, const RowRouter& router,
             std::span<const HostShard> shards)
      : dtype_(spec.dtype),
        tensor_(tensor),
        kind_(*wire::TensorKindOf(tensor)),
        router_(router),
        shards_(shards) {}

  void Read(int64_t token, int64_t first, std::span<double> values) const override {
    const RowRun place = router_.Find(tensor_, token);
    const std::byte* const row = shards_[place.rank].Row(kind_, place.local_row);
    LoadElements(dtype_, row + first * ElementBytes(dtype_), values);
  }

 private:
  const DataType dtype_;
  const v1::Tensor tensor_;
  const TensorKind kind_;
  const RowRouter& router_;
  const std::span<const HostShard> shards_;
};

class BiasRows final : public RowSource {
 public:
  BiasRows(std::span<const float> values, int axes) : values_(values), axes_(axes) {}

  void Read(int64_t token, int64_t first, std::span<double> values) const override {
    std::ranges::copy(values_.subspan(token * axes_ + first, values.size()), values.begin());
  }

 private:
  const std::span<const float> values_;
  const int axes_;
};

}  // namespace

std::string RowCheck::Mismatch::What() const {
  return absl::StrCat(wire::TensorName(tensor), " of token ", deviation.token, ", head ",
                      deviation.head,
                      tensor == v1::TENSOR_OUT ? absl::StrCat(", dim ", deviation.dim) : "", " is ",
                      deviation.actual, ", computed again in float64 it is ", deviation.expected,
                      " and may be off by ", deviation.tolerance);
}

RowCheck::RowCheck(const JobSpec& spec, int64_t rows, uint64_t seed)
    : spec_(spec), tokens_(SampleTokens(spec.tokens, rows, seed)) {}

void RowCheck::Take(const v1::OutputChunk& chunk, std::string_view payload,
                    const std::shared_ptr<const Member>& worker) {
  if (chunk.tokens_size() == 0) {
    const int64_t end = chunk.first_token() + chunk.rows();
    for (auto token = std::lower_bound(tokens_.begin(), tokens_.end(), chunk.first_token());
         token != tokens_.end() && *token < end; ++token) {
      Keep(chunk, payload, *token - chunk.first_token(), *token, worker);
    }
    return;
  }
  for (int place = 0; place < chunk.tokens_size(); ++place) {
    const int64_t token = chunk.tokens(place);
    if (!std::binary_search(tokens_.begin(), tokens_.end(), token)) continue;
    Keep(chunk, payload, place, token, worker);
  }
}

void RowCheck::Keep(const v1::OutputChunk& chunk, std::string_view payload, int64_t place,
                    int64_t token, const std::shared_ptr<const Member>& worker) {
  const bool out = chunk.tensor() == v1::TENSOR_OUT;
  const int64_t row_bytes = wire::TensorRowBytes(spec_, chunk.tensor());
  Sent sent{.worker = worker};
  sent.values.resize(out ? spec_.heads * spec_.value_dim : spec_.heads);
  LoadElements(out ? spec_.dtype : DataType::kFloat32, payload.data() + place * row_bytes,
               sent.values);
  const MutexLock lock(mutex_);
  (out ? rows_[token].out : rows_[token].lse) = std::move(sent);
}

int64_t RowCheck::rows() const {
  const MutexLock lock(mutex_);
  return static_cast<int64_t>(rows_.size());
}

absl::StatusOr<RowCheck::Verdict> RowCheck::Compare(const RowRouter& router,
                                                    const Permutation& order,
                                                    std::span<const HostShard> shards,
                                                    std::span<const float> bias_coordinates,
                                                    const JobStop& stop) const {
  const PlacedRows q(spec_, v1::TENSOR_Q, router, shards);
  const PlacedRows k(spec_, v1::TENSOR_K, router, shards);
  const PlacedRows v(spec_, v1::TENSOR_V, router, shards);
  const BiasRows coordinates(bias_coordinates, BiasAxes(spec_));
  Verdict verdict;
  std::optional<Mismatch>& worst = verdict.mismatch;
  const auto note = [&](const RowDeviation& row, v1::Tensor tensor, const Sent& sent) {
    if (row.worst.excess <= 1 || (worst && row.worst.excess <= worst->deviation.excess)) return;
    worst = Mismatch{.deviation = row.worst, .tensor = tensor, .worker = sent.worker};
  };
  const MutexLock lock(mutex_);
  for (const auto& [token, row] : rows_) {
    RETURN_IF_ERROR(stop.why());
    const ExpectedRow expected = ExpectRow(spec_, order, token, q, k, v, &coordinates);
    expected.tolerance.AllJudged() ? ++verdict.judged : ++verdict.not_judged;
    note(OutDeviation(spec_, token, expected, row.out.values), v1::TENSOR_OUT, row.out);
    note(LseDeviation(token, expected, row.lse.values), v1::TENSOR_LSE, row.lse);
  }
  return verdict;
}

}  // namespace hilbert_ring::server

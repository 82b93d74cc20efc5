#include "server/job/job_work.h"

#include <utility>

#include "engine/base/random_bits.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

class AttentionWork : public JobWork {
 public:
  AttentionWork(const JobSpec& spec, bool want_lse, int check_rows)
      : JobWork(spec), want_lse_(want_lse), check_rows_(check_rows) {}

  Planner MakePlanner(std::function<bool()> cancelled) const override {
    return PlannerOf(spec(), std::move(cancelled));
  }

  std::shared_ptr<RowCheck> MakeCheck() const override {
    if (check_rows_ == 0) return nullptr;
    return std::make_shared<RowCheck>(spec(), check_rows_, DrawBits());
  }

  JobArray ArrayOf(v1::Tensor tensor) const override {
    const JobSpec& s = spec();
    const auto of_job = [&s](std::vector<int64_t> shape) {
      return JobArray{.shape = std::move(shape), .dtype = s.dtype};
    };
    switch (tensor) {
      case v1::TENSOR_Q:
        return of_job({s.tokens, s.heads, s.head_dim});
      case v1::TENSOR_K:
        return of_job({KeyTokens(s), s.kv_heads, s.head_dim});
      case v1::TENSOR_V:
        return of_job({KeyTokens(s), s.kv_heads, s.value_dim});
      case v1::TENSOR_OUT:
        return of_job({s.tokens, s.heads, s.value_dim});
      case v1::TENSOR_LSE:
        if (!want_lse_) return {};
        return {.shape = {s.tokens, s.heads}};
      case v1::TENSOR_COORDS:
        if (!has_coordinates()) return {};
        return {.shape = {KeyTokens(s), s.ordering->coordinate_axes},
                .numbers = JobArray::Numbers::kIntegers};
      case v1::TENSOR_BIAS_COORDS:
        if (!has_bias_coordinates()) return {};
        return {.shape = {KeyTokens(s), BiasAxes(s)}};
      default:
        return {};
    }
  }

  void Describe(v1::RunOpen& open) const override {
    *open.mutable_spec() = wire::EncodeJobSpec(spec());
  }

 private:
  const bool want_lse_;
  const int check_rows_;
};

}  // namespace

int64_t JobWork::client_bytes() const {
  int64_t bytes =
      SaturatingMultiply(KeyTokens(spec()), wire::TensorRowBytes(spec(), v1::TENSOR_COORDS));
  for (int i = 0; i < kTensorKinds; ++i) {
    const auto kind = static_cast<TensorKind>(i);
    if (ArrayOf(wire::TensorOf(kind)).shape.empty()) continue;
    bytes = SaturatingAdd(bytes, SaturatingMultiply(shape().RowsOf(kind), shape().rows[kind]));
  }
  return SaturatingAdd(bytes, pooled_bytes());
}

std::unique_ptr<JobWork> MakeAttentionWork(const JobSpec& spec, bool want_lse, int check_rows) {
  return std::make_unique<AttentionWork>(spec, want_lse, check_rows);
}

}  // namespace hilbert_ring::server

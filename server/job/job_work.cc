#include "server/job/job_work.h"

#include <utility>

#include "engine/base/random_bits.h"
#include "engine/base/saturating.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

class AttentionWork : public JobWork {
 public:
  AttentionWork(const JobSpec& spec, const AttentionWorkOptions& options)
      : JobWork(spec), options_(options) {}

  Planner MakePlanner(std::function<bool()> cancelled) const override {
    return PlannerOf(spec(), std::move(cancelled));
  }

  int64_t client_bytes() const override {
    int64_t of_row = 0;
    for (const TensorKind tensor : kInputKinds) of_row += shape().rows[tensor];
    of_row += shape().rows[TensorKind::kOut];
    if (options_.want_lse) of_row += shape().rows[TensorKind::kLse];
    of_row += wire::TensorRowBytes(spec(), v1::TENSOR_COORDS);
    return SaturatingMultiply(spec().tokens, of_row);
  }

  std::shared_ptr<RowCheck> MakeCheck() const override {
    if (options_.check_rows == 0) return nullptr;
    return std::make_shared<RowCheck>(spec(), options_.check_rows, DrawBits());
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
        return of_job({s.tokens, s.kv_heads, s.head_dim});
      case v1::TENSOR_V:
        return of_job({s.tokens, s.kv_heads, s.value_dim});
      case v1::TENSOR_OUT:
        return of_job({s.tokens, s.heads, s.value_dim});
      case v1::TENSOR_LSE:
        return {.shape = {s.tokens, s.heads}};
      case v1::TENSOR_COORDS:
        if (!has_coordinates()) return {};
        return {.shape = {s.tokens, s.ordering->coordinate_axes},
                .numbers = JobArray::Numbers::kIntegers};
      default:
        return {};
    }
  }

  void Describe(v1::RunOpen& open) const override {
    *open.mutable_spec() = wire::EncodeJobSpec(spec());
  }

 private:
  const AttentionWorkOptions options_;
};

}  // namespace

std::unique_ptr<JobWork> MakeAttentionWork(const JobSpec& spec,
                                           const AttentionWorkOptions& options) {
  return std::make_unique<AttentionWork>(spec, options);
}

}  // namespace hilbert_ring::server

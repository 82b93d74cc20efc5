// The self-test of worker_device.h.
#include <cstdint>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/order/permutation.h"
#include "engine/plan/plan.h"
#include "engine/reference/deviation.h"
#include "engine/run/executor.h"
#include "engine/run/shard_store.h"
#include "engine/spec/numbers.h"
#include "server/worker/worker_device.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kTokens = 64, kHeadDim = 64;
class StoredRows final : public RowSource {
 public:
  StoredRows(DataType dtype, std::minstd_rand& random)
      : dtype_(dtype), bytes_(kTokens * kHeadDim * ElementBytes(dtype)) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < kTokens * kHeadDim; ++i) {
      StoreElement(dtype_, bytes_.data(), i, uniform(random));
    }
  }

  std::byte* data() { return bytes_.data(); }

  void Read(int64_t token, int64_t first, std::span<double> values) const override {
    LoadElements(dtype_, bytes_.data() + (token * kHeadDim + first) * ElementBytes(dtype_), values);
  }

 private:
  const DataType dtype_;
  std::vector<std::byte> bytes_;
};

absl::Status CheckRow(const RowDeviation& row, absl::string_view tensor) {
  const Deviation& worst = row.worst;
  if (worst.excess <= 1) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(tensor, " of token ", worst.token, ", dim ", worst.dim,
                                          " is ", worst.actual, ", must be ", worst.expected,
                                          " within ", worst.tolerance));
}

absl::Status TestIn(DataType dtype, Device& device) {
  JobSpec spec;
  spec.tokens = kTokens;
  spec.heads = spec.kv_heads = 1;
  spec.head_dim = spec.value_dim = kHeadDim;
  spec.dtype = dtype;
  spec.branches = {{.segment = kTokens, .dilation = 1}};
  ASSIGN_OR_RETURN(const Plan plan, MakePlan(spec, 1));
  ASSIGN_OR_RETURN(const auto order, Permutation::Make(spec, {}));
  ASSIGN_OR_RETURN(const auto store, ShardStore::Make(device, plan, 0));
  std::minstd_rand random;
  StoredRows q(dtype, random), k(dtype, random), v(dtype, random), out(dtype, random);
  RETURN_IF_ERROR(store->Write(TensorKind::kQ, 0, kTokens, q.data()));
  RETURN_IF_ERROR(store->Write(TensorKind::kK, 0, kTokens, k.data()));
  RETURN_IF_ERROR(store->Write(TensorKind::kV, 0, kTokens, v.data()));
  RETURN_IF_ERROR(Execute(plan, 0, *store, device, nullptr, 0, {}).status());
  std::vector<float> lse(kTokens);
  RETURN_IF_ERROR(store->Read(TensorKind::kOut, 0, kTokens, out.data()));
  RETURN_IF_ERROR(store->Read(TensorKind::kLse, 0, kTokens, lse.data()));
  for (int64_t token = 0; token < kTokens; ++token) {
    const ExpectedRow expected = ExpectRow(spec, *order, token, q, k, v);
    std::vector<double> row(kHeadDim);
    out.Read(token, 0, row);
    RETURN_IF_ERROR(CheckRow(OutDeviation(spec, token, expected, row), "OUT"));
    row.assign(1, lse[token]);
    RETURN_IF_ERROR(CheckRow(LseDeviation(token, expected, row), "LSE"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SelfTest(Device& device) {
  RETURN_IF_ERROR(TestIn(DataType::kFloat32, device));
  return TestIn(DataType::kBFloat16, device);
}

}  // namespace hilbert_ring::server

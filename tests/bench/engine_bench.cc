// The engine's parts on this machine: attention in GFLOP/s, curve keys and orders, plans.
#include <algorithm>
#include <random>

#include "benchmark/benchmark.h"
#include "engine/device/device.h"
#include "engine/order/curve.h"
#include "engine/order/permutation.h"
#include "engine/plan/plan.h"
#include "tests/random/random_spec.h"

namespace hilbert_ring {
namespace {

// One head of [rows, dim] per thread of work: rows, head dim, threads, dilation, causal.
void Attention(benchmark::State& state) {
  const int64_t rows = state.range(0), dim = state.range(1), dilation = state.range(3);
  const bool causal = state.range(4) != 0;
  auto device = MakeDevice({.threads = static_cast<int>(state.range(2))}).value();
  std::mt19937_64 random(1);
  const std::vector<float> q = testing::RandomValues(rows * dilation * dim, random);
  const std::vector<float> k = testing::RandomValues(rows * dilation * dim, random);
  const std::vector<float> v = testing::RandomValues(rows * dilation * dim, random);
  std::vector<float> out(q.size()), lse(rows * dilation);
  AttentionTask task;
  task.query_rows = task.key_rows = rows;
  task.head_dim = task.value_dim = dim;
  task.q = {.data = q.data(), .row_stride = dilation * dim};
  task.k = {.data = k.data(), .row_stride = dilation * dim};
  task.v = {.data = v.data(), .row_stride = dilation * dim};
  task.out = {.data = out.data(), .row_stride = dilation * dim};
  task.lse = {.data = lse.data(), .row_stride = dilation};
  task.scale = 0.125f;
  if (causal) task.mask = Mask::kDiagonal;
  for (auto _ : state) {
    auto figures = device->Attend({&task, 1}, {});
    if (!figures.ok()) state.SkipWithError("Attend failed");
  }
  const double pairs = causal ? 0.5 * rows * (rows + 1) : 1.0 * rows * rows;
  state.counters["GFLOP/s"] =
      benchmark::Counter(4.0 * dim * pairs * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(Attention)
    ->ArgNames({"rows", "dim", "threads", "dilation", "causal"})
    ->ArgsProduct({{8192}, {64, 128}, {1, 2}, {1, 4}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void HilbertKeys2d(benchmark::State& state) {
  constexpr int kBits = 20;
  std::mt19937_64 random(2);
  std::vector<int64_t> coords(2 << 16);
  for (int64_t& c : coords) c = static_cast<int64_t>(random() >> (64 - kBits));
  std::vector<uint64_t> keys(coords.size() / 2);
  for (auto _ : state) {
    CurveKeys(Curve::kHilbert, 2, kBits, coords, keys);
    benchmark::DoNotOptimize(keys.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(keys.size()));
}
BENCHMARK(HilbertKeys2d);

JobSpec ReportsSpec(int64_t tokens) {
  JobSpec spec;
  spec.tokens = tokens;
  spec.heads = spec.kv_heads = 8;
  spec.head_dim = spec.value_dim = 64;
  spec.branches = {{2048, 1}, {1 << 18, 64}};
  return spec;
}

void OrderOfAMillion(benchmark::State& state) {
  JobSpec spec = ReportsSpec(1 << 20);
  spec.ordering = Ordering{.grid = {1024, 1024}};
  for (auto _ : state) benchmark::DoNotOptimize(Permutation::Make(spec, {}));
}
BENCHMARK(OrderOfAMillion)->Unit(benchmark::kMillisecond);

void PlanOfABillion(benchmark::State& state) {
  JobSpec spec = ReportsSpec(1'000'000'000);
  spec.branches.push_back({spec.tokens, 65536});
  for (auto _ : state) {
    benchmark::DoNotOptimize(MakePlan(spec, static_cast<int>(state.range(0))));
  }
}
BENCHMARK(PlanOfABillion)->Arg(8)->Arg(128)->Arg(1024)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace hilbert_ring

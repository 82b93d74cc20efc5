#include "bench/one_shard_job.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "engine/order/permutation.h"
#include "engine/run/executor.h"
#include "tests/random/random_spec.h"

namespace hilbert_ring::bench {

OneShardJob::OneShardJob(const JobSpec& spec, Device& device)
    : device_(device),
      plan_(MakePlan(spec, 1).value()),
      store_(ShardStore::Make(device, plan_, 0).value()) {
  std::vector<int64_t> tokens(spec.tokens);
  std::iota(tokens.begin(), tokens.end(), 0);
  if (spec.ordering) {
    Permutation::Make(spec, {}).value()->Tokens(0, tokens);
    std::copy(tokens.begin(), tokens.end(), store_->tokens().begin());
  }
  std::mt19937_64 random(6);
  const std::vector<float> values = testing::RandomValues(262'139, random);
  const int64_t elements = spec.heads * spec.head_dim;
  for (const TensorKind kind : {TensorKind::kQ, TensorKind::kK, TensorKind::kV}) {
    for (int64_t slot = 0; slot < spec.tokens; ++slot) {
      auto* row = reinterpret_cast<float*>(store_->Row(kind, slot));
      for (int64_t i = 0; i < elements; ++i) {
        const int64_t index = tokens[slot] * elements + i + 7919 * static_cast<int64_t>(kind);
        row[i] = values[index % static_cast<int64_t>(values.size())];
      }
    }
  }
}

void OneShardJob::Run() {
  const auto figures = Execute(plan_, 0, *store_, device_, nullptr, 1, {});
  if (!figures.ok()) {
    std::fprintf(stderr, "%s\n", figures.status().ToString().c_str());
    std::exit(1);
  }
  flops_ = figures->flops;
}

}  // namespace hilbert_ring::bench

#include "tests/engine/run_engine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/order/permutation.h"
#include "engine/spec/numbers.h"
#include "tests/random/random_spec.h"
#include "tests/support/test_depth.h"
#include "tests/unit/device/kernel_options.h"

namespace hilbert_ring::testing {
namespace {

// A GPU's devices, which take long to make. Ranks return them for reuse.
class KeptDevices {
 public:
  absl::StatusOr<std::unique_ptr<Device>> Take(const std::string& kernel) {
    if (absl::StartsWith(kernel, "cuda")) {
      const MutexLock lock(mutex_);
      auto& kept = kept_[kernel];
      if (!kept.empty()) {
        auto device = std::move(kept.back());
        kept.pop_back();
        return device;
      }
    }
    return MakeDevice(OptionsFor(kernel, 2));
  }

  void Give(const std::string& kernel, std::unique_ptr<Device> device) {
    if (!absl::StartsWith(kernel, "cuda")) return;
    const MutexLock lock(mutex_);
    kept_[kernel].push_back(std::move(device));
  }

  // Never destroyed, because CUDA's runtime may end before the process.
  static KeptDevices& OfProcess() {
    static auto* const devices = new KeptDevices;
    return *devices;
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::vector<std::unique_ptr<Device>>> kept_ ABSL_GUARDED_BY(mutex_);
};

class Runner {
 public:
  Runner(const JobSpec& spec, const EngineInputs& inputs, Plan plan,
         std::shared_ptr<const Permutation> order, const EngineOptions& options)
      : spec_(spec),
        inputs_(inputs),
        order_(std::move(order)),
        options_(options),
        kernel_(options.kernel.empty() ? KernelUnderTest() : options.kernel) {
    result_.plan = std::move(plan);
    result_.out.assign(spec.tokens * spec.heads * spec.value_dim, NAN);
    result_.lse.assign(spec.tokens * spec.heads, NAN);
    result_.figures.resize(result_.plan.shards.workers());
  }

  absl::Status RunRank(int rank, Communicator* communicator) {
    auto device = KeptDevices::OfProcess().Take(kernel_);
    if (!device.ok()) return device.status();
    if (options_.wrap) device = options_.wrap(*std::move(device));
    absl::Status status = RunOn(**device, rank, communicator);
    if (status.ok() && !options_.wrap) KeptDevices::OfProcess().Give(kernel_, *std::move(device));
    return status;
  }

  EngineResult Take() { return std::move(result_); }

 private:
  absl::Status RunOn(Device& device, int rank, Communicator* communicator) {
    Plan plan = result_.plan;
    KeepListsOf(rank, plan);
    auto store = ShardStore::Make(device, plan, rank);
    if (!store.ok()) return store.status();
    absl::Status placed = PlaceAll(rank, **store);
    if (!placed.ok()) return placed;
    const Deadline deadline = std::chrono::steady_clock::now() + options_.limit;
    const ExecuteControl control{.deadline = [deadline] { return deadline; }};
    auto figures = Execute(plan, rank, **store, device, communicator, 0, control);
    if (!figures.ok()) return figures.status();
    result_.figures[rank] = *figures;
    return TakeAll(rank, **store);
  }

  template <typename F>
  void ForEachRow(int rank, bool queries, const F& visit) const {
    const Plan& plan = result_.plan;
    const bool in_place =
        !spec_.ordering ||
        (queries && (spec_.ordering->scope == OrderScope::kKv || plan.rectangle.has_value()));
    const Shards& shards = plan.ShardsOf(queries ? TensorKind::kQ : TensorKind::kK);
    for (const ShardRange& range : shards.OfRank(rank)) {
      std::vector<int64_t> tokens(range.size());
      if (!in_place) order_->Tokens(range.begin, tokens);
      for (int64_t i = 0; i < range.size(); ++i) {
        visit(range.local_begin + i, in_place ? range.begin + i : tokens[i]);
      }
    }
  }

  absl::Status PlaceAll(int rank, ShardStore& store) const {
    std::vector<int64_t> tokens(store.tokens().size());
    std::vector<std::byte> q(store.rows(TensorKind::kQ) * RowBytes(spec_, TensorKind::kQ));
    std::vector<std::byte> k(store.rows(TensorKind::kK) * RowBytes(spec_, TensorKind::kK));
    std::vector<std::byte> v(store.rows(TensorKind::kV) * RowBytes(spec_, TensorKind::kV));
    const int axes = BiasAxes(spec_);
    std::vector<float> coordinates(store.rows(TensorKind::kBiasCoords) * axes);
    const auto place_coordinates = [&](int64_t local, int64_t position) {
      std::copy_n(inputs_.bias_coords.begin() + position * axes, axes,
                  coordinates.begin() + local * axes);
    };
    ForEachRow(rank, false, [&](int64_t local, int64_t token) {
      place_coordinates(local, token);
      Place(k, TensorKind::kK, local, inputs_.k, token);
      Place(v, TensorKind::kV, local, inputs_.v, token);
      if (spec_.ordering) tokens[local] = token;
    });
    ForEachRow(rank, true, [&](int64_t local, int64_t token) {
      Place(q, TensorKind::kQ, local, inputs_.q, token);
      const int64_t keys = store.rows(TensorKind::kK);
      if (HasQueryCoordinates(spec_)) place_coordinates(keys + local, PositionOf(token));
      if (result_.plan.rectangle && QueriesCarrySlots(spec_)) {
        tokens[store.rows(TensorKind::kK) + local] = SlotOf(token);
      }
    });
    absl::Status status = store.WriteTokens(0, static_cast<int64_t>(tokens.size()), tokens.data());
    status.Update(store.Write(TensorKind::kQ, 0, store.rows(TensorKind::kQ), q.data()));
    status.Update(store.Write(TensorKind::kK, 0, store.rows(TensorKind::kK), k.data()));
    status.Update(store.Write(TensorKind::kV, 0, store.rows(TensorKind::kV), v.data()));
    status.Update(store.Write(TensorKind::kBiasCoords, 0, store.rows(TensorKind::kBiasCoords),
                              coordinates.data()));
    return status;
  }

  // The position of a query among all keys; 0 if its sequence has no keys.
  int64_t PositionOf(int64_t query) const {
    for (const SequencePair& pair : SequencePairs(spec_)) {
      const int64_t row = query - pair.queries.begin;
      if (row < 0 || row >= pair.queries.length || pair.keys.length == 0) continue;
      return pair.keys.begin + pair.shift + row;
    }
    return 0;
  }

  int64_t SlotOf(int64_t query) const {
    int64_t slot = 0;
    order_->Slots(PositionOf(query), std::span<int64_t>(&slot, 1));
    return slot;
  }

  void Place(std::vector<std::byte>& rows, TensorKind tensor, int64_t local,
             const std::vector<float>& values, int64_t token) const {
    const int64_t width = RowBytes(spec_, tensor) / ElementBytes(spec_.dtype);
    for (int64_t i = 0; i < width; ++i) {
      StoreElement(spec_.dtype, rows.data(), local * width + i, values[token * width + i]);
    }
  }

  absl::Status TakeAll(int rank, const ShardStore& store) {
    const int64_t width = spec_.heads * spec_.value_dim;
    const int64_t rows = store.rows(TensorKind::kOut);
    std::vector<std::byte> out(rows * RowBytes(spec_, TensorKind::kOut));
    std::vector<float> lse(rows * spec_.heads);
    absl::Status status = store.Read(TensorKind::kOut, 0, rows, out.data());
    status.Update(store.Read(TensorKind::kLse, 0, rows, lse.data()));
    if (!status.ok()) return status;
    ForEachRow(rank, true, [&](int64_t local, int64_t token) {
      for (int64_t i = 0; i < width; ++i) {
        result_.out[token * width + i] = LoadElement(spec_.dtype, out.data(), local * width + i);
      }
      std::copy_n(lse.begin() + local * spec_.heads, spec_.heads,
                  result_.lse.begin() + token * spec_.heads);
    });
    return absl::OkStatus();
  }

  const JobSpec& spec_;
  const EngineInputs& inputs_;
  std::shared_ptr<const Permutation> order_;
  const EngineOptions& options_;
  std::string kernel_;
  EngineResult result_;
};

}  // namespace

std::string KernelUnderTest() {
  const char* kernel = std::getenv("HILBERT_RING_TEST_KERNEL");
  return kernel == nullptr || *kernel == '\0' ? "cpu" : kernel;
}

std::vector<std::string> KernelsUnderTest() {
  const std::string only =
      std::getenv("HILBERT_RING_TEST_KERNEL") == nullptr ? "" : KernelUnderTest();
  std::vector<std::string> kernels;
  for (const std::string& instructions : RunnableCpuInstructions()) {
    if (!absl::StartsWith(only, "cuda")) kernels.push_back("cpu/" + instructions);
  }
  if (absl::StartsWith(only, "cpu")) return KernelsAtDepth(kernels);
  static const std::vector<std::string> of_gpu = CudaKernels();
  for (const std::string& kernel : of_gpu) {
    if (!absl::StartsWith(only, "cuda/") || kernel == only) kernels.push_back(kernel);
  }
  return KernelsAtDepth(kernels);
}

EngineInputs RandomInputs(const JobSpec& spec, uint64_t seed) {
  std::mt19937_64 random(seed);
  EngineInputs inputs;
  inputs.q = RandomValues(spec.tokens * spec.heads * spec.head_dim, random);
  inputs.k = RandomValues(KeyTokens(spec) * spec.kv_heads * spec.head_dim, random);
  inputs.v = RandomValues(KeyTokens(spec) * spec.kv_heads * spec.value_dim, random);
  inputs.coords = RandomCoords(spec, random);
  inputs.bias_coords = RandomBiasCoords(spec, random);
  return inputs;
}

absl::StatusOr<EngineResult> RunEngine(const JobSpec& spec, const EngineInputs& inputs, int workers,
                                       RingKind kind, const std::string& kernel) {
  auto ring = MakeCommunicatorRing(kind, workers);
  if (!ring.ok()) return ring.status();
  return RunEngineOver(*ring, spec, inputs, {.kernel = kernel});
}

absl::StatusOr<EngineResult> RunEngineOver(const CommunicatorRing& ring, const JobSpec& spec,
                                           const EngineInputs& inputs,
                                           const EngineOptions& options) {
  const int workers = static_cast<int>(ring.size());
  auto plan = MakePlan(spec, workers);
  if (!plan.ok()) return plan.status();
  auto order = Permutation::Make(spec, inputs.coords);
  if (!order.ok()) return order.status();
  Runner runner(spec, inputs, *std::move(plan), *std::move(order), options);
  std::vector<absl::Status> statuses(workers);
  RunRanks(ring, [&](int rank, Communicator& communicator) {
    statuses[rank] = runner.RunRank(rank, &communicator);
  });
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return runner.Take();
}

}  // namespace hilbert_ring::testing

#include "engine/device/cpu/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/device/cpu/attention_kernel.h"
#include "engine/device/cpu/few_rows.h"
#include "engine/device/cpu/lane_end.h"
#include "engine/device/cpu/machine.h"
#include "engine/device/cpu/memory.h"
#include "engine/device/cpu/short_batches.h"
#include "engine/device/cpu/thread_pool.h"
#include "engine/device/cpu/work_list.h"

namespace hilbert_ring {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int64_t kChunksPerThread = 32;      // enough to even out, few enough not to contend
constexpr int64_t kMaxTilesPerChunk = 256;    // lane tiles of tiny segments
constexpr int64_t kBytesPerChunk = 64 << 10;  // of the copying tasks
constexpr int64_t kFloatsPerChunk = 1 << 18;  // of merged parts: waking a thread takes as long

// Waking another thread takes about half as long, at 80 GFLOP/s.
constexpr double kLeastSharedFlops = 1.2e7;
constexpr int64_t kLeastLaneFlops = 4096;

constexpr int64_t kUnknownCacheBytes = 256 << 10;
constexpr int64_t kTilesPerThread = 6;       // at least, unless tiles get too small
constexpr int64_t kSmallLaneTile = 192;      // packing a key tile costs 6 % of computing it here
constexpr int64_t kManyTilesPerThread = 32;  // from here on an uneven last round does not matter

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Most lanes of a tile. Queries and sums of a tile fill at most three quarters of the second-level
// cache, where they stay while keys pass. Few lanes are spread evenly. A lane's result does not
// depend on its tile, nor on threads or machine.
int64_t LaneTileFor(std::span<const AttentionTask> tasks, int threads, int64_t cache_bytes) {
  int64_t lanes = 0, dims = 1, greatest = 1;
  for (const AttentionTask& task : tasks) {
    lanes += task.batch * task.query_rows * task.heads;
    dims = std::max(dims, task.head_dim + task.value_dim);
    greatest = std::max({greatest, task.head_dim, task.value_dim});
  }
  const int64_t fitting =
      std::min(cache_bytes * 3 / 4 / (dims * int64_t{sizeof(float)}), kMaxTileFloats / greatest);
  const int64_t wanted = std::max(kSmallLaneTile, lanes / (threads * kTilesPerThread));
  const int64_t tile = std::clamp(std::min(fitting, wanted) / kMaxLaneBlock * kMaxLaneBlock,
                                  kMaxLaneBlock, kMaxLaneTile);
  int64_t tiles = CeilDiv(lanes, tile);
  if (tiles < threads * kManyTilesPerThread) tiles = CeilDiv(tiles, threads) * threads;
  return std::max(kMaxLaneBlock, CeilDiv(lanes, std::max<int64_t>(1, tiles)));
}

// The lanes of a batch of a task, in tiles of whole blocks that differ by one block at most.
class TaskTiles {
 public:
  TaskTiles(const AttentionTask& task, int64_t lane_tile)
      : lanes_(task.query_rows * task.heads),
        blocks_(CeilDiv(lanes_, kMaxLaneBlock)),
        tiles_(CeilDiv(lanes_, lane_tile)) {}

  int64_t count() const { return tiles_; }
  int64_t Begin(int64_t tile) const {  // tile: up to count()
    return std::min(lanes_, tile * blocks_ / tiles_ * kMaxLaneBlock);
  }

 private:
  int64_t lanes_;
  int64_t blocks_;
  int64_t tiles_;
};

// An upper bound without masks. A lane of few keys takes as long as kLeastLaneFlops.
double FlopsOf(std::span<const AttentionTask> tasks) {
  double flops = 0;
  for (const AttentionTask& task : tasks) {
    const int64_t of_lane = 2 * task.key_rows * (task.head_dim + task.value_dim);
    flops += static_cast<double>(task.batch * task.heads * task.query_rows) *
             static_cast<double>(std::max(kLeastLaneFlops, of_lane));
  }
  return flops;
}

class CpuDevice : public Device {
 public:
  CpuDevice(CpuKernels kernels, int threads)
      : kernels_(std::move(kernels)),
        cache_bytes_(SecondLevelCacheBytes().value_or(kUnknownCacheBytes)),
        pool_(threads),
        scratch_(threads),
        info_({.name = absl::StrCat(ProcessorName(), ", ", pool_.threads(),
                                    pool_.threads() == 1 ? " thread" : " threads"),
               .kernel = absl::StrCat("cpu/", kernels_.instructions),
               .memory_bytes = UsableMemoryBytes(),
               .threads = pool_.threads()}) {}

  DeviceInfo info() const override { return info_; }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    return MapMemory(bytes);
  }

  bool host_memory() const override { return true; }
  absl::Status CopyIn(void* to, const void* from, int64_t bytes) override;
  absl::Status CopyRowsIn(const RowsIn& rows) override;
  absl::Status CopyOut(void* to, const void* from, int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<HostPin>> Pin(void* /*memory*/, int64_t /*bytes*/) override {
    return nullptr;
  }
  absl::Status FillFloats(float* to, int64_t count, float value) override;
  absl::Status FillSequence(int64_t* to, int64_t count, int64_t first) override;

  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                       const AttendControl& control) override;
  absl::Status Merge(std::span<const MergeTask> tasks) override;
  absl::Status Finalize(std::span<const FinalizeTask> tasks) override;
  absl::Status Pack(std::span<const PackTask> tasks) override;
  absl::StatusOr<RowMath*> row_math() override {
    return absl::FailedPreconditionError(
        "a CPU's rows are computed where they lie, by engine/model");
  }

 private:
  using Report = std::function<bool(int64_t)>;

  // Computes a part of a split's keys. Results are undefined once `report` has returned false.
  void AttendPart(const PartialResults& results, const KeySplit& split, int64_t batch, int64_t part,
                  AttentionScratch& scratch, const Report& report) const;
  bool AttendShort(std::span<const LaneTile> pack, AttentionScratch& scratch,
                   const Report& report) const;
  void MergeParts(const PartialResults& results, std::span<const AttentionTask> tasks,
                  std::span<const KeySplit> splits);
  void MergeRow(const LaneEnd& end, float& max, float& sum, int64_t count, const float* values,
                float* out) const;
  void MergeHeads(const MergeTask& task, int64_t batch, int64_t row) const;
  void FinalizeRow(const FinalizeTask& task, int64_t batch, int64_t row) const;

  CpuKernels kernels_;
  int64_t cache_bytes_;  // of one core's second-level cache
  ThreadPool pool_;
  std::vector<std::unique_ptr<AttentionScratch>> scratch_;  // [threads], made when first used
  // Cached: memory limits are read from files, and each job's report needs them.
  const DeviceInfo info_;
};

absl::Status CpuDevice::CopyIn(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status CpuDevice::CopyRowsIn(const RowsIn& rows) {
  const auto* from = static_cast<const std::byte*>(rows.from);
  for (const int64_t row : rows.rows) {
    std::memcpy(static_cast<std::byte*>(rows.to) + row * rows.row_bytes, from,
                static_cast<size_t>(rows.row_bytes));
    from += rows.row_bytes;
  }
  return absl::OkStatus();
}

absl::Status CpuDevice::CopyOut(void* to, const void* from, int64_t bytes) {
  return CopyIn(to, from, bytes);
}

absl::Status CpuDevice::FillFloats(float* to, int64_t count, float value) {
  std::fill_n(to, count, value);
  return absl::OkStatus();
}

absl::Status CpuDevice::FillSequence(int64_t* to, int64_t count, int64_t first) {
  std::iota(to, to + count, first);
  return absl::OkStatus();
}

absl::StatusOr<AttendFigures> CpuDevice::Attend(std::span<const AttentionTask> tasks,
                                                const AttendControl& control) {
  std::optional<ShortBatches> shorts;
  if (kernels_.attend_short != nullptr) shorts.emplace(tasks);
  const int64_t lane_tile = LaneTileFor(tasks, pool_.threads(), cache_bytes_);
  WorkList tiles(tasks.size());
  for (const AttentionTask& task : tasks) {
    const bool by_tiles = !HasFewRows(task) && !(shorts && IsShort(task));
    tiles.Add(by_tiles ? task.batch * TaskTiles(task, lane_tile).count() : 0);
  }

  std::atomic<bool> stopped = false;
  std::atomic<int64_t> all_scores = 0;
  const Report report = [&](int64_t scores) {
    all_scores.fetch_add(scores, std::memory_order_relaxed);
    if (control.progress) control.progress(scores);
    if (!stopped.load(std::memory_order_relaxed) && control.cancelled && control.cancelled()) {
      stopped.store(true, std::memory_order_relaxed);
    }
    return !stopped.load(std::memory_order_relaxed);
  };
  if (control.cancelled && control.cancelled()) return absl::CancelledError("attention cancelled");

  // Little work does not wake other threads.
  const bool shared = FlopsOf(tasks) >= kLeastSharedFlops;
  const auto run_chunks = [&](int64_t total, const auto& compute) {
    const int64_t share = total / (pool_.threads() * kChunksPerThread);
    const int64_t chunk = shared ? std::clamp<int64_t>(share, 1, kMaxTilesPerChunk) : total;
    pool_.Run(total, chunk, [&](int thread, int64_t begin, int64_t end) {
      std::unique_ptr<AttentionScratch>& scratch = scratch_[thread];
      if (scratch == nullptr) scratch.reset(new AttentionScratch);
      return compute(begin, end, *scratch);
    });
  };
  const auto run = [&](const WorkList& work, const auto& compute) {
    run_chunks(work.total(), [&](int64_t begin, int64_t end, AttentionScratch& scratch) {
      return work.ForEach(begin, end, [&](size_t index, int64_t piece) {
        compute(index, piece, scratch);
        return !stopped.load(std::memory_order_relaxed);
      });
    });
  };
  run_chunks(shorts ? shorts->total() : 0,
             [&](int64_t begin, int64_t end, AttentionScratch& scratch) {
               return shorts->ForEachPack(begin, end, [&](std::span<const LaneTile> pack) {
                 return AttendShort(pack, scratch, report);
               });
             });
  run(tiles, [&](size_t index, int64_t piece, AttentionScratch& scratch) {
    const AttentionTask& task = tasks[index];
    const TaskTiles of_batch(task, lane_tile);
    const int64_t tile = piece % of_batch.count();
    kernels_.attend({.task = &task,
                     .batch = piece / of_batch.count(),
                     .begin = of_batch.Begin(tile),
                     .end = of_batch.Begin(tile + 1)},
                    scratch, report);
  });
  std::vector<KeySplit> splits = SplitKeys(tasks);
  for (std::span<KeySplit> rest = splits; !rest.empty() && !stopped;) {
    const std::span<KeySplit> wave = FirstWave(tasks, rest);
    rest = rest.subspan(wave.size());
    const PartialResults results(tasks, wave);
    WorkList parts(wave.size());
    for (const KeySplit& split : wave) parts.Add(split.batches * split.parts);
    run(parts, [&](size_t index, int64_t piece, AttentionScratch& scratch) {
      const KeySplit& split = wave[index];
      AttendPart(results, split, piece / split.parts, piece % split.parts, scratch, report);
    });
    if (!stopped) MergeParts(results, tasks, wave);
  }
  if (stopped) return absl::CancelledError("attention cancelled");
  return AttendFigures{.scores = all_scores};
}

void CpuDevice::AttendPart(const PartialResults& results, const KeySplit& split, int64_t batch,
                           int64_t part, AttentionScratch& scratch, const Report& report) const {
  const bool by_rows = split.by_rows && kernels_.attend_rows != nullptr;
  const Report told = [&](int64_t) { return report(0); };  // the same scores again
  results.Clear(split, batch, part);
  const int64_t begin = part * split.part_keys;
  const int64_t end = std::min(begin + split.part_keys, results.key_rows(split));
  for (int64_t key = begin; key < end && report(0); key += kKeysPerFold) {
    const std::vector<AttentionTask> tasks =
        results.TasksOf(split, batch, part, key, std::min(kKeysPerFold, end - key));
    if (by_rows && kernels_.attend_rows(tasks, scratch, report)) continue;
    for (const AttentionTask& task : tasks) {
      kernels_.attend({.task = &task, .end = task.query_rows * task.heads}, scratch,
                      by_rows ? told : report);
    }
  }
}

// Returns what `report` does.
bool CpuDevice::AttendShort(std::span<const LaneTile> pack, AttentionScratch& scratch,
                            const Report& report) const {
  std::vector<LaneTile> rest;
  kernels_.attend_short(pack, scratch, rest);
  const Report told = [&](int64_t) { return report(0); };  // the same scores again
  for (const LaneTile& lane : rest) kernels_.attend(lane, scratch, told);
  int64_t scores = 0;
  for (const LaneTile& of : pack) scores += of.end * of.task->key_rows;
  return report(scores);
}

// values: null: zeros.
void CpuDevice::MergeRow(const LaneEnd& end, float& max, float& sum, int64_t count,
                         const float* values, float* out) const {
  if (std::isnan(sum) || end.sum == 0) return;
  MergeShares shares{.before = 0, .now = 1};
  if (std::isnan(end.sum)) {
    sum = std::numeric_limits<float>::quiet_NaN();
  } else {
    shares = MergeKeys(end, max, sum);
  }
  if (values != nullptr) {
    kernels_.merge_row(shares, values, count, out);
    return;
  }
  for (int64_t x = 0; x < count; ++x) {
    const double merged = out[x] * shares.before;
    out[x] = static_cast<float>(NotBeyond(std::abs(out[x]), merged));
  }
}

// Merges all heads of a row.
void CpuDevice::MergeHeads(const MergeTask& task, int64_t batch, int64_t row) const {
  float* out = static_cast<float*>(task.out.data) + batch * task.out.batch_stride +
               row * task.out.row_stride;
  const auto* values = static_cast<const float*>(task.values.data);
  if (values != nullptr) values += batch * task.values.batch_stride + row * task.values.row_stride;
  const int64_t state = batch * task.state.batch_stride + row * task.state.row_stride;
  const int64_t part = batch * task.part.batch_stride + row * task.part.row_stride;
  LaneEnd end{.sum = static_cast<double>(task.count), .scale = std::abs(task.scale)};
  for (int64_t head = 0; head < task.heads; ++head) {
    if (values != nullptr) {
      end.row_max = task.part.max[part + head * task.part.head_stride];
      end.sum = task.part.sum[part + head * task.part.head_stride];
    }
    const int64_t at = state + head * task.state.head_stride;
    MergeRow(end, task.state.max[at], task.state.sum[at], task.value_dim,
             values == nullptr ? nullptr : values + head * task.values.head_stride,
             out + head * task.out.head_stride);
  }
}

void CpuDevice::MergeParts(const PartialResults& results, std::span<const AttentionTask> tasks,
                           std::span<const KeySplit> splits) {
  WorkList work(splits.size());
  int64_t parts = 1;
  for (const KeySplit& split : splits) {
    const AttentionTask& task = tasks[split.begin];
    work.Add(split.tasks() * split.batches * task.query_rows);
    parts = std::max(parts, split.parts * task.heads * task.value_dim);
  }
  pool_.Run(work.total(), 1 + kFloatsPerChunk / parts, [&](int, int64_t begin, int64_t end) {
    return work.ForEach(begin, end, [&](size_t index, int64_t piece) {
      const KeySplit& split = splits[index];
      const AttentionTask& first = tasks[split.begin];
      const int64_t row = piece % first.query_rows;
      const int64_t batch = piece / first.query_rows % split.batches;
      const int64_t task = piece / first.query_rows / split.batches;
      const bool writes = tasks[split.begin + static_cast<size_t>(task)].result == Result::kWrite;
      for (int64_t part = writes ? 1 : 0; part < split.parts; ++part) {
        MergeHeads(results.MergeOf(split, task, part), batch, row);
      }
      if (writes) FinalizeRow(results.FinalizeOf(split, task), batch, row);
      return true;
    });
  });
}

absl::Status CpuDevice::Merge(std::span<const MergeTask> tasks) {
  WorkList work(tasks.size());
  int64_t bytes = 0;
  for (const MergeTask& task : tasks) {
    work.Add(task.values.data == nullptr && task.count == 0 ? 0 : task.batch * task.rows);
    bytes = std::max(bytes, task.heads * task.value_dim * ElementBytes(DataType::kFloat32));
  }
  pool_.Run(work.total(), kBytesPerChunk / (bytes + 1), [&](int, int64_t begin, int64_t end) {
    return work.ForEach(begin, end, [&](size_t index, int64_t piece) {
      const MergeTask& task = tasks[index];
      MergeHeads(task, piece / task.rows, piece % task.rows);
      return true;
    });
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::Finalize(std::span<const FinalizeTask> tasks) {
  WorkList work(tasks.size());
  int64_t bytes = 0;
  for (const FinalizeTask& task : tasks) {
    work.Add(task.batch * task.rows);
    bytes = std::max(bytes, task.heads * task.value_dim * ElementBytes(DataType::kFloat32));
  }
  pool_.Run(work.total(), kBytesPerChunk / (bytes + 1), [&](int, int64_t begin, int64_t end) {
    return work.ForEach(begin, end, [&](size_t index, int64_t piece) {
      const FinalizeTask& task = tasks[index];
      FinalizeRow(task, piece / task.rows, piece % task.rows);
      return true;
    });
  });
  return absl::OkStatus();
}

void CpuDevice::FinalizeRow(const FinalizeTask& task, int64_t batch, int64_t row) const {
  const int64_t state = batch * task.state.batch_stride + row * task.state.row_stride;
  const int64_t lse = batch * task.lse.batch_stride + row * task.lse.row_stride;
  const int64_t from = batch * task.from.batch_stride + row * task.from.row_stride;
  const int64_t to = batch * task.to.batch_stride + row * task.to.row_stride;
  for (int64_t head = 0; head < task.heads; ++head) {
    double share = 1;
    if (task.state.max != nullptr) {
      const int64_t at = state + head * task.state.head_stride;
      const LaneEnd end{.row_max = task.state.max[at],
                        .sum = task.state.sum[at],
                        .scale = std::abs(task.score_scale)};
      const SunkEnd sunk = task.sinks == nullptr ? SunkEnd{.lse = end.Lse(end.Seen())}
                                                 : WithSink(end, task.sinks[head]);
      if (task.lse.data != nullptr) task.lse.data[lse + head * task.lse.head_stride] = sunk.lse;
      share = sunk.share;
    }
    if (task.to.data == nullptr) continue;
    kernels_.store_row(
        static_cast<const float*>(task.from.data) + from + head * task.from.head_stride,
        task.value_dim, static_cast<float>(task.scale * share), task.to_dtype,
        static_cast<std::byte*>(task.to.data) +
            (to + head * task.to.head_stride) * ElementBytes(task.to_dtype));
  }
}

absl::Status CpuDevice::Pack(std::span<const PackTask> tasks) {
  WorkList work(tasks.size());
  int64_t bytes = 0;
  for (const PackTask& task : tasks) {
    work.Add(task.rows);
    bytes = std::max(bytes, task.heads * task.head_bytes);
  }
  pool_.Run(work.total(), kBytesPerChunk / (bytes + 1), [&](int, int64_t begin, int64_t end) {
    return work.ForEach(begin, end, [&](size_t index, int64_t row) {
      const PackTask& task = tasks[index];
      const int64_t row_bytes = task.heads * task.head_bytes;
      if (row_bytes == 0) return true;
      const std::byte* from = static_cast<const std::byte*>(task.from) + row * task.row_stride;
      std::byte* to = static_cast<std::byte*>(task.to) + row * row_bytes;
      if (task.head_stride == task.head_bytes) {
        std::memcpy(to, from, static_cast<size_t>(row_bytes));
        return true;
      }
      for (int64_t head = 0; head < task.heads; ++head) {
        std::memcpy(to + head * task.head_bytes, from + head * task.head_stride,
                    static_cast<size_t>(task.head_bytes));
      }
      return true;
    });
  });
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> RunnableCpuInstructions() {
  std::vector<std::string> names;
  for (const CpuKernels& kernels : RunnableCpuKernels()) names.push_back(kernels.instructions);
  return names;
}

absl::StatusOr<std::unique_ptr<Device>> MakeCpuDevice(const DeviceOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", options.threads, ", must be from 0 to ", kMaxThreads));
  }
  const int threads = options.threads == 0 ? UsableThreads() : options.threads;
  for (CpuKernels& kernels : RunnableCpuKernels()) {
    if (options.instructions.empty() || options.instructions == kernels.instructions) {
      return std::make_unique<CpuDevice>(std::move(kernels), threads);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("instructions is \"", options.instructions,
                                                 "\", this machine runs ",
                                                 absl::StrJoin(RunnableCpuInstructions(), ", ")));
}

}  // namespace hilbert_ring

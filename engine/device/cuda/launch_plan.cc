#include "engine/device/cuda/launch_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "engine/device/score_unit.h"

namespace hilbert_ring::cuda {
namespace {

constexpr double kLoneBlockShare = 0.25;  // of a multiprocessor's rate, by a block alone on it
// A guess of the rate of tasks that change scores: a step of the pipelined kernel has 3.6 times as
// many instructions with a softcap at head dim 64.
constexpr double kChangedShare = 0.4;
constexpr int64_t kWaveTilesPerMultiprocessor = 4;
// A launch at its rates interleaves at least this many tiles of an item. A slow one has fewer.
constexpr double kLeastInterleaved = 32;
constexpr int64_t kCopyBytes = 16;   // alignment of asynchronous copies
constexpr int64_t kStateFloats = 2;  // of a lane, beside its values

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t Lanes(const AttentionTask& task) { return task.query_rows * task.heads; }

double Rate(const KernelTile& tile, const AttentionTask& task, const LaunchRates& rates) {
  const double rate = tile.units == MatrixUnits::kNone ? rates.plain_flops : rates.tensor_flops;
  return task.change.changes() ? kChangedShare * rate : rate;
}

// Operations of a tile of lanes with one key.
double FlopsPerKey(const KernelTile& tile, const AttentionTask& task) {
  const auto head_dim = static_cast<double>(tile.head_dim > 0 ? tile.head_dim : task.head_dim);
  return 2.0 * tile.lanes * (head_dim + tile.value_dim);
}

// Keys that a block computes within a launch's time, in whole tiles.
int64_t MostKeys(const KernelTile& tile, const AttentionTask& task, const LaunchRates& rates) {
  const double flops =
      Rate(tile, task, rates) / rates.multiprocessors * kLoneBlockShare * rates.launch_seconds;
  const double tiles = flops / FlopsPerKey(tile, task) / tile.keys;
  const double most = static_cast<double>(kMostKeys) / tile.keys;
  return tile.keys * std::max<int64_t>(1, static_cast<int64_t>(std::min(tiles, most)));
}

int64_t WaveTiles(const LaunchRates& rates) {
  return kWaveTilesPerMultiprocessor * rates.multiprocessors;
}

bool IsEmpty(const AttentionTask& task) { return task.batch == 0 || Lanes(task) == 0; }

WorkState StateOf(const StateView& state) {
  return {.max = state.max,
          .sum = state.sum,
          .batch = state.batch_stride,
          .row = state.row_stride,
          .head = state.head_stride};
}

WorkView ViewOf(const void* data, int64_t batch, int64_t row, int64_t head) {
  return {.data = const_cast<void*>(data), .batch = batch, .row = row, .head = head};
}

template <typename View>
WorkView ViewOf(const View& view) {
  return ViewOf(view.data, view.batch_stride, view.row_stride, view.head_stride);
}

bool Aligned(const WorkView& view, int64_t element_bytes, int64_t bytes) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data) % bytes);
  return address == 0 && view.batch * element_bytes % bytes == 0 &&
         view.row * element_bytes % bytes == 0 && view.head * element_bytes % bytes == 0;
}

// Query row i sees keys i + lower to i + upper.
struct Band {
  int64_t lower, upper;
};

int64_t Added(int64_t a, int64_t b) {
  int64_t sum;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

// A mask by positions may show any key. Shifts beyond the limits change nothing.
Band BandOf(const AttentionTask& task) {
  const auto limited = [&](int64_t shift) {
    return std::clamp(shift, -task.query_rows, task.key_rows);
  };
  if (task.mask != Mask::kDiagonal) return {-task.query_rows, task.key_rows};
  return {limited(Added(task.diagonal_shift, -task.left)),
          limited(Added(task.diagonal_shift, task.right))};
}

// The most keys that a tile of lanes sees.
int64_t SeenKeys(const KernelTile& tile, const AttentionTask& task) {
  const Band band = BandOf(task);
  const int64_t rows = std::min(task.query_rows, CeilDiv(tile.lanes - 1, task.heads) + 1);
  return std::clamp<int64_t>(band.upper - band.lower + rows, 0, task.key_rows);
}

// Returns whether the task's keys are cut.
bool IsLong(const KernelTile& tile, const AttentionTask& task, const LaunchRates& rates) {
  return SeenKeys(tile, task) > MostKeys(tile, task, rates) || task.key_rows > kMostKeys;
}

// Keys that tile `index` of a work's task sees, or more.
int64_t KeysOfTile(const AttentionWork& work, const KernelTile& tile, int64_t index) {
  if (work.mask != kWorkMaskDiagonal) return work.key_end;
  const int64_t first_lane = (work.tiles_per_batch - 1 - index % work.tiles_per_batch) * tile.lanes;
  const int64_t last_lane = std::min(work.lanes, first_lane + tile.lanes) - 1;
  const int64_t begin =
      std::clamp<int64_t>(first_lane / work.heads + work.lower_shift, 0, work.key_end);
  return std::clamp(last_lane / work.heads + work.upper_shift + 1, begin, work.key_end) - begin;
}

bool SameShape(const AttentionTask& a, const AttentionTask& b) {
  const auto shape = [](const AttentionTask& task) {
    return std::tuple(task.batch, task.query_rows, task.heads, task.key_rows, task.head_dim,
                      task.value_dim, task.mask, task.diagonal_shift, task.left, task.right);
  };
  return shape(a) == shape(b);
}

WorkChange ChangeOf(const AttentionTask& task) {
  if (!task.change.changes()) return {};
  WorkChange change{.scale = std::abs(task.scale),
                    .softcap = task.change.softcap,
                    .slopes = task.change.slopes,
                    .diagonal_shift = task.diagonal_shift,
                    .row_distance = task.change.row_distance,
                    .axes = task.change.axes};
  if (change.softcap > 0) change.cap_factor = change.scale / change.softcap;
  return change;
}

// Returns whether float32 holds the softcap's factor with all of its digits, and its products.
bool CapIsOrdinary(const WorkChange& change) {
  if (change.softcap == 0 || change.scale == 0) return true;
  return change.cap_factor >= 0x1p-126f && change.cap_factor <= 0x1p126f &&
         change.softcap <= 0x1p126f;
}

// The least lane of a wave, whose tiles kernels take from the last (FindTile) under kDiagonal.
int64_t FirstLane(const AttentionWork& work, const KernelTile& tile) {
  const int64_t of_batch = work.task_tile % work.tiles_per_batch;
  const int64_t first_tile =
      work.mask == kWorkMaskDiagonal ? work.tiles_per_batch - of_batch - work.tiles : of_batch;
  return first_tile * tile.lanes;
}

AttentionWork WorkOf(const AttentionTask& task, const KernelTile& tile) {
  AttentionWork work;
  work.q = ViewOf(task.q);
  work.k = ViewOf(task.k.data, task.k.batch_stride, task.k.row_stride, 0);
  work.v = ViewOf(task.v.data, task.v.batch_stride, task.v.row_stride, 0);
  work.out = ViewOf(task.out);
  if (task.result == Result::kWrite) {
    work.lse = ViewOf(task.lse);
  } else {
    work.prior_out = work.out;
    work.state = work.prior_state = StateOf(task.state);
  }
  work.change = ChangeOf(task);
  work.query_positions = ViewOf(task.query_positions.data, task.query_positions.batch_stride,
                                task.query_positions.row_stride, 0);
  work.key_positions = ViewOf(task.key_positions.data, task.key_positions.batch_stride,
                              task.key_positions.row_stride, 0);
  work.query_coordinates = ViewOf(task.query_coordinates.data, task.query_coordinates.batch_stride,
                                  task.query_coordinates.row_stride, 0);
  work.key_coordinates = ViewOf(task.key_coordinates.data, task.key_coordinates.batch_stride,
                                task.key_coordinates.row_stride, 0);
  work.lanes = Lanes(task);
  work.heads = task.heads;
  work.key_end = task.key_rows;
  const Band band = BandOf(task);
  work.lower_shift = band.lower;
  work.upper_shift = band.upper;
  work.tiles_per_batch = CeilDiv(work.lanes, tile.lanes);
  work.tiles = task.batch * work.tiles_per_batch;
  work.query_sign = task.scale > 0 ? 1.0f : task.scale < 0 ? -1.0f : 0.0f;
  work.scale = std::abs(task.StateScale());
  if (work.scale == 0.0f) {
    work.score_scale = 1.0f;
  } else {
    const ScoreUnit unit = ScoreUnitOf(work.scale);
    work.score_scale = unit.log2;
    work.careful = unit.IsOrdinary() && CapIsOrdinary(work.change) ? 0 : 1;
  }
  work.out_scale = task.result == Result::kWrite ? task.out_scale : 1.0f;
  work.head_dim = static_cast<int>(task.head_dim);
  work.value_dim = static_cast<int>(task.value_dim);
  work.dtype = static_cast<int>(task.dtype);
  work.out_dtype = static_cast<int>(task.out_dtype);
  work.mask = static_cast<int>(task.mask);
  const int64_t element = ElementBytes(task.dtype);
  const int64_t out_element = ElementBytes(task.out_dtype);
  work.queries_aligned = Aligned(work.q, element, kCopyBytes) ? 1 : 0;
  work.keys_aligned =
      Aligned(work.k, element, kCopyBytes) && Aligned(work.v, element, kCopyBytes) ? 1 : 0;
  work.out_aligned = Aligned(work.out, out_element, 2 * out_element) ? 1 : 0;
  return work;
}

// Returns how many tiles from task_tile on cost at most flops_left, at least `least`, and takes
// their costs from it.
int64_t TilesWithin(const AttentionWork& work, const KernelTile& tile, double flops_per_key,
                    int64_t least, int64_t most, double& flops_left) {
  int64_t tiles = 0;
  for (; tiles < most; ++tiles) {
    const double cost =
        flops_per_key * static_cast<double>(KeysOfTile(work, tile, work.task_tile + tiles) + 1);
    if (cost > flops_left && tiles >= least) break;
    flops_left -= cost;
  }
  return tiles;
}

}  // namespace

int64_t ScratchFloats(std::span<const AttentionTask> tasks, const LaunchRates& rates) {
  int64_t floats = 0;
  for (const AttentionTask& task : tasks) {
    if (IsEmpty(task) || task.result == Result::kMerge) continue;
    const KernelTile tile = TileOf(ChooseNative(task, rates.matrix_units));
    if (!IsLong(tile, task, rates)) continue;
    const int64_t tiles = std::min(WaveTiles(rates), CeilDiv(Lanes(task), tile.lanes));
    floats = std::max(floats, tiles * tile.lanes * (task.value_dim + kStateFloats));
  }
  return floats;
}

LaunchPlanner::LaunchPlanner(std::span<const AttentionTask> tasks, const LaunchRates& rates,
                             float* scratch)
    : rates_(rates), scratch_(scratch) {
  for (const AttentionTask& task : tasks) {
    if (IsEmpty(task)) continue;
    const NativeKernel kernel = ChooseNative(task, rates.matrix_units);
    items_.push_back(
        {.task = &task, .kernel = kernel, .is_long = IsLong(TileOf(kernel), task, rates)});
  }
  std::stable_sort(items_.begin(), items_.end(),
                   [](const Item& a, const Item& b) { return a.Kind() < b.Kind(); });
}

bool LaunchPlanner::Next(PlannedLaunch& launch) {
  launch.works.clear();
  launch.tiles = 0;
  double flops_left = 0;
  const size_t start = item_;
  while (item_ < items_.size() && launch.works.size() < kMostWorks) {
    const Item& item = items_[item_];
    if (launch.works.empty()) {
      launch.kernel = item.kernel;
      launch.dtype = item.task->dtype;
      launch.changes = item.task->change.changes();
      flops_left =
          Rate(TileOf(item.kernel), *item.task, rates_) * rates_.launch_seconds / slowness_;
    } else if (item.is_long || item.Kind() != items_[start].Kind()) {
      break;
    }
    if (item.is_long) {
      AddPart(item, launch);
      break;
    }
    if (launch.works.empty() && AddInterleaved(launch, flops_left)) break;
    const int64_t tiles_before = launch.tiles;
    AddTiles(item, launch, flops_left);
    if (launch.tiles == tiles_before) break;  // the launch is full
  }
  return !launch.works.empty();
}

// Returns how many items from item_ on are triangles of the same shape; 1: none but item_.
size_t LaunchPlanner::AlikeItems() const {
  const Item& first = items_[item_];
  if (first.task->mask != Mask::kDiagonal) return 1;
  size_t alike = 1;
  while (item_ + alike < items_.size() && alike < kMostWorks) {
    const Item& item = items_[item_ + alike];
    if (item.Kind() != first.Kind() || !SameShape(*item.task, *first.task)) break;
    ++alike;
  }
  return alike;
}

// Fills an empty launch with interleaved tiles. Returns false if item_ is like no other item, or if
// a later item would fit the launch, too.
bool LaunchPlanner::AddInterleaved(PlannedLaunch& launch, double flops_left) {
  const Item& first = items_[item_];
  const size_t alike = interleaved_ > 0 ? interleaved_ : AlikeItems();
  if (alike < 2) return false;
  const KernelTile tile = TileOf(first.kernel);
  AttentionWork work = WorkOf(*first.task, tile);
  const int64_t left = work.tiles - tile_;
  const auto items = static_cast<int64_t>(alike);
  work.task_tile = tile_;
  const double limit = flops_left;
  const double flops_per_key = FlopsPerKey(tile, *first.task) * static_cast<double>(alike);
  work.tiles =
      TilesWithin(work, tile, flops_per_key, 1, std::min(left, kMostTiles / items), flops_left);
  if (interleaved_ == 0) {
    const bool fills = work.tiles < left || item_ + alike == items_.size();
    const double round = flops_per_key * static_cast<double>(KeysOfTile(work, tile, tile_) + 1);
    if (!fills || round * kLeastInterleaved > limit * slowness_) return false;
  }
  for (size_t i = 0; i < alike; ++i) {
    AttentionWork of_item = WorkOf(*items_[item_ + i].task, tile);
    of_item.task_tile = tile_;
    of_item.tiles = work.tiles;
    launch.works.push_back(of_item);
  }
  launch.tiles = items * work.tiles;
  tile_ += work.tiles;
  interleaved_ = alike;
  if (work.tiles == left) {
    item_ += alike;
    tile_ = 0;
    interleaved_ = 0;
  }
  return true;
}

// Adds as many of the item's tiles as the launch has room for, at least one to an empty launch.
void LaunchPlanner::AddTiles(const Item& item, PlannedLaunch& launch, double& flops_left) {
  const KernelTile tile = TileOf(item.kernel);
  AttentionWork work = WorkOf(*item.task, tile);
  const int64_t left = work.tiles - tile_;
  const int64_t most = std::min(left, kMostTiles - launch.tiles);
  const int64_t least = launch.works.empty() ? 1 : 0;
  work.task_tile = tile_;
  work.first_tile = launch.tiles;
  work.tiles = TilesWithin(work, tile, FlopsPerKey(tile, *item.task), least, most, flops_left);
  if (work.tiles == 0) return;
  launch.tiles += work.tiles;
  tile_ += work.tiles;
  if (work.tiles == left) {
    ++item_;
    tile_ = 0;
  }
  launch.works.push_back(work);
}

// Adds the next keys of one wave of a long item.
void LaunchPlanner::AddPart(const Item& item, PlannedLaunch& launch) {
  const AttentionTask& task = *item.task;
  const KernelTile tile = TileOf(item.kernel);
  const AttentionWork whole = WorkOf(task, tile);
  AttentionWork work = whole;
  const int64_t of_batch = tile_ % whole.tiles_per_batch;
  work.task_tile = tile_;
  work.tiles = std::min(WaveTiles(rates_), whole.tiles_per_batch - of_batch);
  // The wave's rows see keys [begin, end) at most. A work has a key, because maps must.
  const int64_t first_lane = FirstLane(work, tile);
  const int64_t last_lane = std::min(work.lanes, first_lane + work.tiles * tile.lanes) - 1;
  const int64_t begin =
      std::clamp<int64_t>(first_lane / work.heads + work.lower_shift, 0, task.key_rows - 1);
  const int64_t end =
      std::clamp(last_lane / work.heads + work.upper_shift + 1, begin + 1, task.key_rows);
  const bool first = key_ <= begin;
  work.key_begin = std::max(key_, begin);
  work.key_end = std::min(end, work.key_begin + MostKeys(tile, task, rates_));
  const bool last = work.key_end == end;
  if (task.result == Result::kWrite) {
    UseScratch(work, task, tile);
    if (first) {
      work.prior_out = {};
      work.prior_state = {};
    }
    if (last) {
      work.out = whole.out;
      work.lse = whole.lse;
      work.state = whole.state;
      work.out_scale = whole.out_scale;
      work.out_dtype = whole.out_dtype;
      work.out_aligned = whole.out_aligned;
    }
  }
  launch.tiles = work.tiles;
  launch.works.push_back(work);
  key_ = last ? 0 : work.key_end;
  if (!last) return;
  tile_ += work.tiles;
  if (tile_ == whole.tiles) {
    ++item_;
    tile_ = 0;
  }
}

// Makes results, and the rows that they merge with, dense float32 rows of the wave's lanes.
void LaunchPlanner::UseScratch(AttentionWork& work, const AttentionTask& task,
                               const KernelTile& tile) const {
  const int64_t first_lane = FirstLane(work, tile);
  const int64_t lanes = work.tiles * tile.lanes;
  // The place of lane 0's `lane_floats`, behind `lane_floats_before` of each lane.
  const auto floats = [&](int64_t lane_floats_before, int64_t lane_floats) {
    const int64_t bytes = (lanes * lane_floats_before - first_lane * lane_floats) *
                          static_cast<int64_t>(sizeof(float));
    const uintptr_t address = reinterpret_cast<uintptr_t>(scratch_) + static_cast<uintptr_t>(bytes);
    return reinterpret_cast<float*>(address);
  };
  work.out = work.prior_out =
      ViewOf(floats(0, task.value_dim), 0, task.heads * task.value_dim, task.value_dim);
  work.lse = {};
  work.state = work.prior_state = {.max = floats(task.value_dim, 1),
                                   .sum = floats(task.value_dim + 1, 1),
                                   .row = task.heads,
                                   .head = 1};
  work.out_scale = 1.0f;
  work.out_dtype = kWorkFloat32;
  work.out_aligned = 1;  // value_dim is even
}

}  // namespace hilbert_ring::cuda

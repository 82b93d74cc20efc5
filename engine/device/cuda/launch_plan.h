// Cuts attention tasks into launches that are short enough for cancelling between them. Pure.
//
// Tasks of one kernel that change scores, or keep them, share launches. If a task's keys would take
// a block of threads too long, they are cut too. The parts run one after the other and merge in
// float32: in place if the task merges, else in scratch memory, tile by tile of a wave that fits
// it.
//
// A launch interleaves the tiles of triangles of the same shape, the longest first. All blocks of
// threads then end with short tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "engine/device/attention.h"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/kernel_choice.h"

namespace hilbert_ring::cuda {

// Rates that the cost of a launch is estimated from.
struct LaunchRates {
  int multiprocessors = 1;
  MatrixUnits matrix_units = MatrixUnits::kNone;
  double tensor_flops = 1;       // a second, of the whole GPU, within native kernels' reach
  double plain_flops = 1;        // of float32 kernels
  double launch_seconds = 0.02;  // a launch's longest time
};

struct PlannedLaunch {
  NativeKernel kernel = NativeKernel::kPlain64;
  DataType dtype = DataType::kFloat32;  // that tensor kernels multiply
  bool changes = false;                 // ScoreChange::changes() of all works
  std::vector<AttentionWork> works;     // at most kMostWorks
  int64_t tiles = 0;
};
inline constexpr size_t kMostWorks = 1024;
inline constexpr int64_t kMostTiles = 1 << 19;  // of a launch, each with a byte of its notes

inline constexpr int64_t kMostKeys = 1 << 30;  // of a work: kernels count them in 32 bits

// Floats of scratch memory that these tasks' launches need, often 0.
int64_t ScratchFloats(std::span<const AttentionTask> tasks, const LaunchRates& rates);

class LaunchPlanner {
 public:
  // Tasks outlive this. scratch: ScratchFloats.
  LaunchPlanner(std::span<const AttentionTask> tasks, const LaunchRates& rates, float* scratch);

  // Puts the next launch into `launch`; returns false after the last. Launches run in this order.
  bool Next(PlannedLaunch& launch);

  // Launches take `times` longer than their rates: later launches get fewer tiles.
  void ExpectSlowness(double times) { slowness_ = times; }

 private:
  struct Item {
    const AttentionTask* task = nullptr;
    NativeKernel kernel = NativeKernel::kPlain64;
    bool is_long = false;

    // Items of a launch are of one kind.
    auto Kind() const { return std::tuple(kernel, task->dtype, task->change.changes()); }
  };
  bool AddInterleaved(PlannedLaunch& launch, double flops_left);
  size_t AlikeItems() const;
  void AddTiles(const Item& item, PlannedLaunch& launch, double& flops_left);
  void AddPart(const Item& item, PlannedLaunch& launch);
  void UseScratch(AttentionWork& work, const AttentionTask& task, const KernelTile& tile) const;

  const LaunchRates rates_;
  double slowness_ = 1;
  float* const scratch_;
  std::vector<Item> items_;
  size_t item_ = 0;
  int64_t tile_ = 0;        // the item's next tile
  size_t interleaved_ = 0;  // items from item_ on whose next tile is tile_; 0: item_ alone
  int64_t key_ = 0;         // the next key of a long item's tile
};

}  // namespace hilbert_ring::cuda

// Cuts attention tasks into launches that are short enough to be cancelled between. Pure.
//
// Tasks that go to one kernel share launches. A task whose keys would take one block of threads too
// long is cut by keys as well: parts follow each other and are merged in float32, in place where
// the task merges, else in scratch memory, tile by tile of a wave that fits it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/attention.h"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/kernel_choice.h"

namespace hilbert_ring::cuda {

// What the cost of a launch is estimated from.
struct LaunchRates {
  int multiprocessors = 1;
  MatrixUnits matrix_units = MatrixUnits::kNone;
  double tensor_flops = 1;       // a second, of the whole GPU, as our kernels may reach
  double plain_flops = 1;        // likewise, of float32 kernels
  double launch_seconds = 0.02;  // what a launch should take at most
};

struct PlannedLaunch {
  NativeKernel kernel = NativeKernel::kPlain64;
  DataType dtype = DataType::kFloat32;  // that tensor kernels multiply
  std::vector<AttentionWork> works;     // at most kMostWorks
  int64_t tiles = 0;
};
inline constexpr size_t kMostWorks = 1024;
inline constexpr int64_t kMostTiles = 1 << 19;  // of a launch, each with a byte of its notes

inline constexpr int64_t kMostKeys = 1 << 30;  // of a work: kernels count them in 32 bits

// Floats of scratch memory that the launches of these tasks need; 0 for most.
int64_t ScratchFloats(std::span<const AttentionTask> tasks, const LaunchRates& rates);

class LaunchPlanner {
 public:
  // Tasks outlive this. `scratch` is memory of ScratchFloats.
  LaunchPlanner(std::span<const AttentionTask> tasks, const LaunchRates& rates, float* scratch);

  // Puts the next launch into `launch`; false when there is none. Launches follow each other in
  // this order.
  bool Next(PlannedLaunch& launch);

  // Launches take so many times longer than their rates say: from now on they get fewer tiles.
  void ExpectSlowness(double times) { slowness_ = times; }

 private:
  struct Item {
    const AttentionTask* task = nullptr;
    NativeKernel kernel = NativeKernel::kPlain64;
    bool is_long = false;
  };
  void AddTiles(const Item& item, PlannedLaunch& launch, double& flops_left);
  void AddPart(const Item& item, PlannedLaunch& launch);
  void UseScratch(AttentionWork& work, const AttentionTask& task, const KernelTile& tile) const;

  const LaunchRates rates_;
  double slowness_ = 1;
  float* const scratch_;
  std::vector<Item> items_;
  size_t item_ = 0;
  int64_t tile_ = 0;  // of the item, that comes next
  int64_t key_ = 0;   // likewise, of a long one's tile
};

}  // namespace hilbert_ring::cuda

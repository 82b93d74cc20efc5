// The two products of attention, of one warpgroup's lanes, over rows in panels.
//
// A Kernel has Element, kDim, kLanes (rows of a panel of queries) and kKeys (of keys or values).
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_panels.cuh"
#include "engine/device/cuda/kernels/warpgroup.cuh"

namespace hilbert_ring::cuda {

// Starts scores = queries x keys of a group's lanes. queries: its part of the first panel.
template <typename Kernel>
__device__ __forceinline__ void StartScores(float (&scores)[Kernel::kKeys / 8][4],
                                            SharedMatrix queries, SharedMatrix keys) {
#pragma unroll
  for (int x = 0; x < Kernel::kDim; x += 16) {
    const int panel = x / kPanel;
    MultiplyRows<typename Kernel::Element>(
        scores, PartAt(queries, panel * Kernel::kLanes * kPanel + x % kPanel),
        PartAt(keys, panel * Kernel::kKeys * kPanel + x % kPanel), x > 0);
  }
  WarpgroupCommit();
}

// Starts out += weights x values.
template <typename Kernel>
__device__ __forceinline__ void StartValues(float (&out)[Kernel::kDim / 8][4],
                                            const uint32_t (&weights)[Kernel::kKeys / 16][4],
                                            SharedMatrix values) {
  using T = typename Kernel::Element;
#pragma unroll
  for (int n = 0; n < Kernel::kKeys / 16; ++n) {
    MultiplyColumns<T, 0>(out, weights[n], PartAt(values, 16 * n * kPanel));
    if constexpr (Kernel::kDim > kPanel) {
      MultiplyColumns<T, kPanel / 8>(out, weights[n],
                                     PartAt(values, (Kernel::kKeys + 16 * n) * kPanel));
    }
  }
  WarpgroupCommit();
}

}  // namespace hilbert_ring::cuda

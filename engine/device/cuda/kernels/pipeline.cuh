// What a producer and its consumers are made of on Hopper: barriers in shared memory that count
// arrivals and copied bytes, copies by the bulk tensor engine, named barriers of some of a block's
// warps, and registers that change hands. Compute capability 9.0 alone (sm_90a). As
// intrinsics.cuh, a stand-in of this header lets kernels run on the host.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/intrinsics.cuh"
#include "engine/device/cuda/kernels/tensor_map.h"

namespace hilbert_ring::cuda {

// A barrier in shared memory. Its phases follow each other; one ends when as many threads have
// arrived as it was made for, and all bytes that it expects are there.
struct PhaseBarrier {
  uint64_t state;
};

// Known to other threads after PublishBarriers and a barrier of the block.
__device__ __forceinline__ void MakeBarrier(PhaseBarrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(SharedAddress(&barrier)),
               "r"(arrivals)
               : "memory");
}

// Lets copies by the bulk tensor engine use the barriers that this thread has made.
__device__ __forceinline__ void PublishBarriers() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// What the thread did before is done for those who await the phase.
__device__ __forceinline__ void Arrive(PhaseBarrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(SharedAddress(&barrier))
               : "memory");
}

// Arrives, and makes the phase wait for so many bytes of copies too.
__device__ __forceinline__ void ArriveExpecting(PhaseBarrier& barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(SharedAddress(&barrier)),
      "r"(bytes)
      : "memory");
}

// Returns when the phase of this parity has ended: the first has parity 0. Of a new barrier, parity
// 1 has.
__device__ __forceinline__ void Await(PhaseBarrier& barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ended;\n"
      "bra again;\n"
      "ended:\n}\n" ::"r"(SharedAddress(&barrier)),
      "r"(parity)
      : "memory");
}

// Lets the thread use a map that the host has written.
__device__ __forceinline__ void AcquireMap(const TensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;\n" ::"l"(map) : "memory");
}

// Starts the copy of kMapRows rows of 64 elements, from element x of row `row` of a batch on, to a
// panel in shared memory (attention_panels.cuh). All its bytes, of zeros too, count for `barrier`.
__device__ __forceinline__ void CopyBox(void* panel, const TensorMap* map, PhaseBarrier& barrier,
                                        int x, int row, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];\n" ::"r"(SharedAddress(panel)),
      "l"(map), "r"(SharedAddress(&barrier)), "r"(x), "r"(row), "r"(batch)
      : "memory");
}

// The barriers of a block by number, of kThreads of its threads, whole warps; 0 is the block's own.
// AwaitNamed arrives and waits; ArriveNamed does not wait.
template <int kThreads>
__device__ __forceinline__ void AwaitNamed(int number) {
  asm volatile("barrier.cta.sync.aligned %0, %1;\n" ::"r"(number), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ __forceinline__ void ArriveNamed(int number) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;\n" ::"r"(number), "n"(kThreads) : "memory");
}

// AwaitNamed; whether any of the threads brought true.
template <int kThreads>
__device__ __forceinline__ bool AnyOfNamed(int number, bool value) {
  int any;
  asm volatile(
      "{\n.reg .pred mine, all;\n"
      "setp.ne.b32 mine, %1, 0;\n"
      "barrier.cta.red.or.pred.aligned all, %2, %3, mine;\n"
      "selp.b32 %0, 1, 0, all;\n}\n"
      : "=r"(any)
      : "r"(static_cast<int>(value)), "r"(number), "n"(kThreads)
      : "memory");
  return any != 0;
}

// A warpgroup goes on with fewer registers a thread than it began with, or with more, for which it
// waits.
template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

}  // namespace hilbert_ring::cuda

// Hopper's instructions for a producer and its consumers: barriers that count arrivals and copied
// bytes, copies by the bulk tensor engine, barriers of some warps, and moves of registers between
// warpgroups. Compute capability 9.0 alone (sm_90a). A stand-in of this header runs on the host.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/intrinsics.cuh"
#include "engine/device/cuda/kernels/tensor_map.h"

namespace hilbert_ring::cuda {

// A barrier in shared memory. A phase ends when all threads and expected bytes have arrived.
struct PhaseBarrier {
  uint64_t state;
};

// Other threads may use it after PublishBarriers and a barrier of the block.
__device__ __forceinline__ void MakeBarrier(PhaseBarrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(SharedAddress(&barrier)),
               "r"(arrivals)
               : "memory");
}

// Lets the bulk tensor engine use the barriers that this thread has made.
__device__ __forceinline__ void PublishBarriers() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Threads that await the phase see this thread's earlier writes.
__device__ __forceinline__ void Arrive(PhaseBarrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(SharedAddress(&barrier))
               : "memory");
}

// Arrives, and makes the phase wait for `bytes` of copies too.
__device__ __forceinline__ void ArriveExpecting(PhaseBarrier& barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(SharedAddress(&barrier)),
      "r"(bytes)
      : "memory");
}

// Returns when the phase of this parity has ended. The first has parity 0; parity 1 ended before
// it.
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
// panel in shared memory (attention_panels.cuh). `barrier` counts all its bytes, zeros too.
__device__ __forceinline__ void CopyBox(void* panel, const TensorMap* map, PhaseBarrier& barrier,
                                        int x, int row, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];\n" ::"r"(SharedAddress(panel)),
      "l"(map), "r"(SharedAddress(&barrier)), "r"(x), "r"(row), "r"(batch)
      : "memory");
}

// A block's barriers by number, of kThreads threads in whole warps; 0 is the block's own.
// AwaitNamed arrives and waits; ArriveNamed does not wait.
template <int kThreads>
__device__ __forceinline__ void AwaitNamed(int number) {
  asm volatile("barrier.cta.sync.aligned %0, %1;\n" ::"r"(number), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ __forceinline__ void ArriveNamed(int number) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;\n" ::"r"(number), "n"(kThreads) : "memory");
}

// AwaitNamed that returns whether any thread gave true.
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

// Change a warpgroup's registers a thread to fewer, or to more once they are free.
template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

}  // namespace hilbert_ring::cuda

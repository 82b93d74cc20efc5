// Barriers among some of a block's threads (include/engine/device/cuda/kernels/pipeline.cuh):
// barriers in shared memory, which count arrivals and copied bytes, and numbered barriers.
//
// The process fails if a thread uses a barrier too early, a phase gets too many arrivals or bytes,
// a warp comes to a numbered barrier twice in one turn, or the block ends with a half full barrier.
#pragma once

#include <cstdint>

namespace hilbert_ring::emulation {

// Barriers in shared memory, by address.
void MakePhaseBarrier(void* barrier, int arrivals);
// Lets copies of boxes use the thread's barriers.
void PublishPhaseBarriers();
// The last arrival shows published memory to products, if all arrived threads have published.
void ArriveAtPhase(void* barrier, int64_t expected_bytes);
void BringBytes(void* barrier, int64_t bytes);
void CheckBoxBarrier(void* barrier);  // fails unless a copy may use it
void AwaitPhase(void* barrier, int parity);

// Waits for all `threads` threads if `waits`. Returns the number of threads with `vote`.
int ArriveAtNumber(int number, int threads, bool waits, bool vote);

void CheckBarriersAtEnd();

}  // namespace hilbert_ring::emulation

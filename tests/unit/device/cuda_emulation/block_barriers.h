// Barriers among some of a block's threads (include/engine/device/cuda/kernels/pipeline.cuh):
// barriers in shared memory, which count arrivals and copied bytes, and numbered barriers.
//
// The process fails if a thread uses a barrier before all threads can know it, if a phase gets too
// many arrivals or bytes, if a warp comes to a numbered barrier twice in one turn, or if the block
// ends while a barrier is half full.
#pragma once

#include <cstdint>

namespace hilbert_ring::emulation {

// Barriers in shared memory, by address.
void MakePhaseBarrier(void* barrier, int arrivals);
// Lets copies of boxes use the thread's barriers.
void PublishPhaseBarriers();
// The last arrival of a phase shows published memory of the arrived threads to products, if all of
// them have published.
void ArriveAtPhase(void* barrier, int64_t expected_bytes);
void BringBytes(void* barrier, int64_t bytes);
void CheckBoxBarrier(void* barrier);  // fails unless a copy may use it
void AwaitPhase(void* barrier, int parity);

// The numbered barrier of `threads` threads; waits for all of them if `waits`. Returns the number
// of threads with `vote`.
int ArriveAtNumber(int number, int threads, bool waits, bool vote);

void CheckBarriersAtEnd();

}  // namespace hilbert_ring::emulation

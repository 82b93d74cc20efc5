// Barriers of some of a block's threads, for include/engine/device/cuda/kernels/pipeline.cuh: those
// in shared memory, which count arrivals and copied bytes, and the numbered ones.
//
// It is a failure when a barrier is used before all threads can know it, when it gets more arrivals
// or bytes than its phase has room for, when a warp comes to a numbered barrier twice in one turn,
// and when the block ends while one is half full.
#pragma once

#include <cstdint>

namespace hilbert_ring::emulation {

// In shared memory, by the address.
void MakePhaseBarrier(void* barrier, int arrivals);
// Copies of boxes may use those that the thread has made.
void PublishPhaseBarriers();
// The last arrival of a phase shows to products what the threads that arrived have published, if
// all of them have.
void ArriveAtPhase(void* barrier, int64_t expected_bytes);
void BringBytes(void* barrier, int64_t bytes);
void CheckBoxBarrier(void* barrier);  // that a copy may use it
void AwaitPhase(void* barrier, int parity);

// The barrier of a number, of so many threads; waits for all of them if `waits`. Returns how many
// have brought `vote`.
int ArriveAtNumber(int number, int threads, bool waits, bool vote);

void CheckBarriersAtEnd();

}  // namespace hilbert_ring::emulation

// Registers of a block's warpgroups (include/engine/device/cuda/kernels/pipeline.cuh), counted but
// not used: the process fails if a multiprocessor could never give them.
#pragma once

namespace hilbert_ring::emulation {

// Gives the thread's warpgroup this number of registers a thread.
void ShareRegisters(int registers);
void CheckRegistersAtEnd(int threads);

}  // namespace hilbert_ring::emulation

// Registers of a block's warpgroups, for include/engine/device/cuda/kernels/pipeline.cuh. They are
// counted, not used: it is a failure where a multiprocessor could never have given so many.
#pragma once

namespace hilbert_ring::emulation {

// The thread's warpgroup goes on with so many registers a thread.
void ShareRegisters(int registers);
void CheckRegistersAtEnd(int threads);

}  // namespace hilbert_ring::emulation

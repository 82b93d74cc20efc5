// Barriers, copies of boxes and registers of a producer and its consumers on the host, by the PTX
// ISA. Replaces the header of the same name.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/intrinsics.cuh"
#include "engine/device/cuda/kernels/tensor_map.h"
#include "tests/unit/device/cuda_emulation/block_barriers.h"
#include "tests/unit/device/cuda_emulation/box_copies.h"
#include "tests/unit/device/cuda_emulation/register_shares.h"

namespace hilbert_ring::cuda {

struct PhaseBarrier {
  uint64_t state;
};

inline void MakeBarrier(PhaseBarrier& barrier, int arrivals) {
  emulation::MakePhaseBarrier(&barrier, arrivals);
}
inline void PublishBarriers() { emulation::PublishPhaseBarriers(); }
inline void Arrive(PhaseBarrier& barrier) { emulation::ArriveAtPhase(&barrier, 0); }
inline void ArriveExpecting(PhaseBarrier& barrier, int bytes) {
  emulation::ArriveAtPhase(&barrier, bytes);
}
inline void Await(PhaseBarrier& barrier, int parity) { emulation::AwaitPhase(&barrier, parity); }

inline void AcquireMap(const TensorMap* map) { emulation::AcquireTensorMap(map); }
inline void CopyBox(void* panel, const TensorMap* map, PhaseBarrier& barrier, int x, int row,
                    int batch) {
  emulation::CopyBoxLater(panel, map, &barrier, x, row, batch);
}

template <int kThreads>
void AwaitNamed(int number) {
  emulation::ArriveAtNumber(number, kThreads, true, false);
}
template <int kThreads>
void ArriveNamed(int number) {
  emulation::ArriveAtNumber(number, kThreads, false, false);
}
template <int kThreads>
bool AnyOfNamed(int number, bool value) {
  return emulation::ArriveAtNumber(number, kThreads, true, value) > 0;
}

template <int kRegisters>
void GiveRegisters() {
  emulation::ShareRegisters(kRegisters);
}
template <int kRegisters>
void TakeRegisters() {
  emulation::ShareRegisters(kRegisters);
}

}  // namespace hilbert_ring::cuda

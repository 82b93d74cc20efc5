#include "tests/unit/device/cuda_emulation/block_barriers.h"

#include <array>
#include <cstddef>
#include <map>
#include <set>

#include "tests/unit/device/cuda_emulation/block_runner.h"

namespace hilbert_ring::emulation {
namespace {

constexpr int kNumbers = 16;

struct Phases {
  int maker = 0;
  uint64_t made_at = 0;  // BarrierTurn
  bool for_boxes = false;
  int arrivals = 0;  // of a phase
  int pending = 0;   // of the current phase
  int64_t bytes = 0;
  uint64_t phase = 0;
  bool all_published = true;
};

struct Numbered {
  int arrived = 0;
  int threads = 0;
  int votes = 0;
  int result = 0;
  uint64_t turn = 0;
  std::set<int> came;  // threads
};

struct Barriers {
  uint64_t block = 0;
  std::map<const void*, Phases> phases;
  std::array<Numbered, kNumbers> numbered;
};

// Barriers of the block that the system thread runs.
Barriers& OfBlock() {
  thread_local Barriers barriers;
  if (barriers.block != BlockNumber()) {
    barriers = {};
    barriers.block = BlockNumber();
  }
  return barriers;
}

Phases& PhasesOf(void* barrier) {
  auto& all = OfBlock().phases;
  const auto found = all.find(barrier);
  if (found == all.end()) Fail("a barrier in shared memory was not made");
  Phases& phases = found->second;
  if (phases.maker != ThreadOfBlock() && phases.made_at == BarrierTurn()) {
    Fail("a thread uses a barrier that it may not see yet");
  }
  return phases;
}

// Ends a complete phase; returns whether it did.
bool EndPhase(Phases& phases) {
  if (phases.pending > 0 || phases.bytes > 0) return false;
  if (phases.all_published) ShowShared();
  phases.pending = phases.arrivals;
  phases.all_published = true;
  ++phases.phase;
  return true;
}

}  // namespace

void MakePhaseBarrier(void* barrier, int arrivals) {
  const auto at = static_cast<std::byte*>(barrier) - SharedBytes();
  if (at < 0 || static_cast<size_t>(at) >= SharedSize() || at % 8 != 0) {
    Fail("a barrier does not lie in shared memory");
  }
  const bool made = OfBlock()
                        .phases
                        .emplace(barrier, Phases{.maker = ThreadOfBlock(),
                                                 .made_at = BarrierTurn(),
                                                 .arrivals = arrivals,
                                                 .pending = arrivals})
                        .second;
  if (!made) Fail("a barrier was made twice");
}

void PublishPhaseBarriers() {
  for (auto& [at, phases] : OfBlock().phases) {
    if (phases.maker == ThreadOfBlock()) phases.for_boxes = true;
  }
}

void ArriveAtPhase(void* barrier, int64_t expected_bytes) {
  Phases& phases = PhasesOf(barrier);
  if (--phases.pending < 0) Fail("a barrier has more arrivals than its phase has room for");
  phases.bytes += expected_bytes;
  phases.all_published = TakePublication() && phases.all_published;
  // Waiting threads may run before this thread's next step.
  if (EndPhase(phases)) LetOthersGoFirst();
}

void BringBytes(void* barrier, int64_t bytes) {
  Phases& phases = OfBlock().phases.at(barrier);
  phases.bytes -= bytes;
  if (phases.bytes < 0) Fail("a barrier gets more bytes than it expects");
  EndPhase(phases);
}

void CheckBoxBarrier(void* barrier) {
  if (!PhasesOf(barrier).for_boxes) Fail("a copy uses a barrier that was not published");
}

void AwaitPhase(void* barrier, int parity) {
  Phases& phases = PhasesOf(barrier);
  WaitUntil([&] { return static_cast<int>(phases.phase % 2) != parity; });
}

int ArriveAtNumber(int number, int threads, bool waits, bool vote) {
  if (number < 0 || number >= kNumbers || threads % kWarpThreads != 0) {
    Fail("there is no such numbered barrier");
  }
  Numbered& barrier = OfBlock().numbered[number];
  if (barrier.arrived > 0 && barrier.threads != threads)
    Fail("a barrier of two numbers of threads");
  if (!barrier.came.insert(ThreadOfBlock()).second) {
    Fail("a thread comes to a numbered barrier twice in one turn");
  }
  barrier.threads = threads;
  if (vote) ++barrier.votes;
  const uint64_t turn = barrier.turn;
  if (++barrier.arrived == threads) {
    barrier.result = barrier.votes;
    barrier.arrived = barrier.votes = 0;
    barrier.came.clear();
    ++barrier.turn;
  } else if (waits) {
    WaitUntil([&] { return barrier.turn != turn; });
  }
  return barrier.result;
}

void CheckBarriersAtEnd() {
  for (const auto& [at, phases] : OfBlock().phases) {
    if (phases.bytes != 0) Fail("a block ended before all bytes arrived that a barrier expects");
  }
  for (const Numbered& barrier : OfBlock().numbered) {
    if (barrier.arrived != 0) Fail("a block ended while a numbered barrier is half full");
  }
}

}  // namespace hilbert_ring::emulation

#include "tests/unit/device/cuda_emulation/register_shares.h"

#include <cstdint>
#include <map>

#include "tests/unit/device/cuda_emulation/block_runner.h"

namespace hilbert_ring::emulation {
namespace {

constexpr int kGroupThreads = 4 * kWarpThreads;
constexpr int kOfMultiprocessor = 64 << 10;
constexpr int kLeast = 24, kMost = 256, kUnit = 8;  // limits of setmaxnreg

struct Shares {
  uint64_t block = 0;
  std::map<int, int> of_group;  // groups that called setmaxnreg
};

// Shares of the block that the system thread runs.
Shares& OfBlock() {
  thread_local Shares shares;
  if (shares.block != BlockNumber()) shares = {.block = BlockNumber(), .of_group = {}};
  return shares;
}

}  // namespace

void ShareRegisters(int registers) {
  if (registers < kLeast || registers > kMost || registers % kUnit != 0) {
    Fail("a warpgroup takes an illegal number of registers");
  }
  WarpgroupInstruction(registers, [](int first, int number) {
    if (!OfBlock().of_group.emplace(first / kGroupThreads, number).second) {
      Fail("a warpgroup takes registers twice");
    }
  });
}

void CheckRegistersAtEnd(int threads) {
  const Shares& shares = OfBlock();
  if (shares.of_group.empty()) return;
  const int groups = threads / kGroupThreads;
  if (static_cast<int>(shares.of_group.size()) != groups) {
    Fail("some warpgroups have given or taken registers, but not all");
  }
  int all = 0;
  for (const auto& [group, registers] : shares.of_group) all += registers * kGroupThreads;
  if (all > kOfMultiprocessor) Fail("warpgroups wait for registers that no group gives");
}

}  // namespace hilbert_ring::emulation

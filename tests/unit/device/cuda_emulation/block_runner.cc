#include "tests/unit/device/cuda_emulation/block_runner.h"

#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/device/cuda_emulation/block_barriers.h"
#include "tests/unit/device/cuda_emulation/box_copies.h"
#include "tests/unit/device/cuda_emulation/include/cuda_runtime.h"
#include "tests/unit/device/cuda_emulation/register_shares.h"

thread_local uint3 threadIdx;
thread_local uint3 blockIdx;
thread_local dim3 blockDim;
thread_local dim3 gridDim;

namespace hilbert_ring::emulation {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kSharedAlignment = 1024;

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

// Runs one thread of each block. Starting a fiber takes system calls, so fibers are kept.
struct Fiber {
  std::unique_ptr<std::byte[]> stack{new std::byte[kStackBytes]};
  ucontext_t start;
  jmp_buf resume;
  bool started = false;
  bool ended = false;
  bool published = false;
  std::vector<Copy> copies;
};

struct Warp {
  int arrived = 0;
  uint64_t turn = 0;
  const char* name = nullptr;
  WarpOperands operands;
};

struct Warpgroup {
  int arrived = 0;
  uint64_t turn = 0;
  int number = 0;
};

// The block that a system thread runs.
struct Runner {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Warp> warps;
  std::vector<Warpgroup> groups;
  std::vector<std::byte> shared;
  std::byte* shared_begin = nullptr;
  size_t shared_bytes = 0;
  std::vector<std::byte> published;  // as products see it
  const std::function<void()>* body = nullptr;
  jmp_buf caller;
  int threads = 0;
  int current = 0;
  int live = 0;
  int step = 1;
  int arrived = 0;  // at the block's barrier
  int votes = 0;
  int result = 0;
  uint64_t turn = 0;
  uint64_t block = 0;
  int idle = 0;  // consecutive threads that still had to wait
};

Runner& ThisRunner() {
  thread_local Runner runner;
  return runner;
}

void EnterFiber();

constexpr int kGroupThreads = 4 * kWarpThreads;

// Continues fiber `next`; never returns.
[[noreturn]] void Resume(Runner& runner, int next) {
  runner.current = next;
  threadIdx.x = static_cast<unsigned>(next);
  Fiber& fiber = *runner.fibers[next];
  if (fiber.started) _longjmp(fiber.resume, 1);
  fiber.started = true;
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = fiber.stack.get();
  fiber.start.uc_stack.ss_size = kStackBytes;
  fiber.start.uc_link = nullptr;
  makecontext(&fiber.start, EnterFiber, 0);
  setcontext(&fiber.start);
  Fail("a fiber did not start");
}

int NextLive(const Runner& runner) {
  int next = runner.current;
  do {
    next = (next + runner.step + runner.threads) % runner.threads;
  } while (runner.fibers[next]->ended);
  return next;
}

void Yield(Runner& runner) {
  Fiber& fiber = *runner.fibers[runner.current];
  const int next = NextLive(runner);
  if (next == runner.current) return;
  if (_setjmp(fiber.resume) == 0) Resume(runner, next);
}

// Makes published memory visible, if all threads of the block have published.
void PublishOfAll(Runner& runner) {
  bool all = true;
  for (int i = 0; i < runner.threads; ++i) {
    Fiber& fiber = *runner.fibers[i];
    all = all && (fiber.published || fiber.ended);
    fiber.published = false;
  }
  if (all) ShowShared();
}

void ReleaseBarrier(Runner& runner) {
  PublishOfAll(runner);
  runner.result = runner.votes;
  runner.arrived = runner.votes = 0;
  ++runner.turn;
}

// Ends the fiber's thread of the block; never returns.
[[noreturn]] void Leave(Runner& runner) {
  runner.fibers[runner.current]->ended = true;
  runner.idle = 0;
  --runner.live;
  if (runner.live == 0) _longjmp(runner.caller, 1);
  if (runner.arrived == runner.live && runner.arrived > 0) ReleaseBarrier(runner);
  Resume(runner, NextLive(runner));
}

void EnterFiber() {
  Runner& runner = ThisRunner();
  while (true) {
    (*runner.body)();
    // The next block's thread continues here.
    if (_setjmp(runner.fibers[runner.current]->resume) == 0) Leave(runner);
  }
}

}  // namespace

void RunBlock(unsigned block, unsigned blocks, int threads, size_t shared_bytes,
              const std::function<void()>& body) {
  Runner& runner = ThisRunner();
  blockIdx = {block, 0, 0};
  blockDim = dim3(static_cast<unsigned>(threads));
  gridDim = dim3(blocks);
  if (threads % kWarpThreads != 0) Fail("a block is not made of whole warps");
  while (static_cast<int>(runner.fibers.size()) < threads) {
    runner.fibers.push_back(std::make_unique<Fiber>());
  }
  for (int i = 0; i < threads; ++i) {
    runner.fibers[i]->ended = runner.fibers[i]->published = false;
    runner.fibers[i]->copies.clear();
  }
  runner.warps.assign(threads / kWarpThreads, Warp{});
  runner.groups.assign(threads / kGroupThreads, Warpgroup{});
  ++runner.block;
  runner.shared.assign(shared_bytes + kSharedAlignment, std::byte{0xff});
  const auto address = reinterpret_cast<uintptr_t>(runner.shared.data());
  runner.shared_begin = runner.shared.data() + (kSharedAlignment - address % kSharedAlignment);
  runner.shared_bytes = shared_bytes;
  runner.published.assign(shared_bytes, std::byte{0xff});
  runner.body = &body;
  runner.threads = runner.live = threads;
  runner.step = block % 2 == 0 ? 1 : -1;
  runner.arrived = runner.votes = runner.idle = 0;
  if (_setjmp(runner.caller) == 0) Resume(runner, block % 2 == 0 ? 0 : threads - 1);
  for (int i = 0; i < threads; ++i) {
    if (!runner.fibers[i]->copies.empty()) Fail("a thread ended before its copies arrived");
  }
  CheckBoxesAtEnd();
  CheckBarriersAtEnd();
  CheckRegistersAtEnd(threads);
}

void Fail(const char* what) {
  std::fprintf(stderr, "CUDA emulation: %s in block %u\n", what, blockIdx.x);
  std::abort();
}

void Pause() {
  Runner& runner = ThisRunner();
  if (++runner.idle > runner.live) {
    if (!BringBox()) Fail("all threads wait");
    runner.idle = 0;
  }
  Yield(runner);
}

void GoOn() { ThisRunner().idle = 0; }

void LetOthersGoFirst() {
  GoOn();
  Yield(ThisRunner());
}

uint64_t BlockNumber() { return ThisRunner().block; }

int ThreadOfBlock() { return ThisRunner().current; }

std::byte* SharedBytes() { return ThisRunner().shared_begin; }

size_t SharedSize() { return ThisRunner().shared_bytes; }

int BlockBarrier(bool vote) {
  Runner& runner = ThisRunner();
  const uint64_t turn = runner.turn;
  if (vote) ++runner.votes;
  if (++runner.arrived == runner.live) {
    ReleaseBarrier(runner);
  } else {
    WaitUntil([&] { return runner.turn != turn; });
  }
  return runner.result;
}

void WarpInstruction(const char* name, const void* in, size_t in_bytes, void* out, size_t out_bytes,
                     void (*instruction)(WarpOperands&)) {
  Runner& runner = ThisRunner();
  const int thread = runner.current % kWarpThreads;
  Warp& warp = runner.warps[runner.current / kWarpThreads];
  if (warp.arrived > 0 && warp.name != name && std::strcmp(warp.name, name) != 0)
    Fail("threads of a warp have parted");
  warp.name = name;
  std::memcpy(warp.operands.in[thread], in, in_bytes);
  const uint64_t turn = warp.turn;
  if (++warp.arrived == kWarpThreads) {
    instruction(warp.operands);
    warp.arrived = 0;
    ++warp.turn;
  } else {
    WaitUntil([&] { return warp.turn != turn; });
  }
  std::memcpy(out, warp.operands.out[thread], out_bytes);
}

void WarpgroupInstruction(int number, void (*instruction)(int first, int number)) {
  Runner& runner = ThisRunner();
  const int index = runner.current / kGroupThreads;
  if (index >= static_cast<int>(runner.groups.size())) Fail("four warps do not make a warpgroup");
  Warpgroup& group = runner.groups[index];
  if (group.arrived > 0 && group.number != number) Fail("threads of a warpgroup have parted");
  group.number = number;
  const uint64_t turn = group.turn;
  if (++group.arrived == kGroupThreads) {
    instruction(index * kGroupThreads, number);
    group.arrived = 0;
    ++group.turn;
  } else {
    WaitUntil([&] { return group.turn != turn; });
  }
}

void CopyLater(void* to, const void* from, size_t bytes) {
  Runner& runner = ThisRunner();
  runner.fibers[runner.current]->copies.push_back({to, from, bytes});
}

void AwaitCopies() {
  Runner& runner = ThisRunner();
  Fiber& fiber = *runner.fibers[runner.current];
  std::vector<Copy>& copies = fiber.copies;
  fiber.published = fiber.published && copies.empty();
  for (const Copy& copy : copies) {
    if (copy.from == nullptr) {
      std::memset(copy.to, 0, copy.bytes);
    } else {
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
  }
  copies.clear();
}

void PublishShared() {
  Runner& runner = ThisRunner();
  runner.fibers[runner.current]->published = true;
}

bool TakePublication() {
  Runner& runner = ThisRunner();
  return std::exchange(runner.fibers[runner.current]->published, false);
}

void ShowShared() {
  Runner& runner = ThisRunner();
  std::memcpy(runner.published.data(), runner.shared_begin, runner.shared_bytes);
  HideBoxesUnderWay();
}

uint64_t BarrierTurn() { return ThisRunner().turn; }

std::byte* PublishedBytes() { return ThisRunner().published.data(); }

}  // namespace hilbert_ring::emulation

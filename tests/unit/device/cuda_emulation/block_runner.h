// Runs the threads of a CUDA block on the host, as fibers that take turns at barriers and
// warp-wide instructions.
//
// It proves indexing and arithmetic, not speed, and finds races only where an order of turns shows
// them: warps take turns forwards in one block and backwards in the next, shared memory begins as
// NaN, and asynchronous copies arrive only when they are waited for; those of boxes, only when all
// threads wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace hilbert_ring::emulation {

inline constexpr int kWarpThreads = 32;
inline constexpr int kMostOperandBytes = 64;  // of one thread in a warp-wide instruction

// What the warp's threads brought to an instruction, and what each takes away.
struct WarpOperands {
  alignas(16) std::byte in[kWarpThreads][kMostOperandBytes];
  alignas(16) std::byte out[kWarpThreads][kMostOperandBytes];
};

// Runs `body` as every thread of block `block` of `blocks`. Blocks of one system thread run one
// after the other; several system threads may run blocks at once.
void RunBlock(unsigned block, unsigned blocks, int threads, size_t shared_bytes,
              const std::function<void()>& body);

// Of the fiber that asks.
int ThreadOfBlock();
uint64_t BlockNumber();    // counts the blocks that the system thread has run
std::byte* SharedBytes();  // aligned to 1024
size_t SharedSize();

// Lets other threads go on until `ready`. When all threads wait, a box on its way arrives
// (BringBox), or it is a failure if there is none.
void Pause();
void GoOn();
void LetOthersGoFirst();  // as far as they can
template <typename Ready>
void WaitUntil(const Ready& ready) {
  while (!ready()) Pause();
  GoOn();
}

// Ends the process: the kernel did what no kernel may do.
[[noreturn]] void Fail(const char* what);

// All threads of the block that have not ended. Returns how many brought `vote`.
int BlockBarrier(bool vote);

// Brings `bytes` of operands; the last thread of the warp to come runs `instruction` for all.
// `name` must be the same for all threads: it is a failure when they part.
void WarpInstruction(const char* name, const void* in, size_t in_bytes, void* out, size_t out_bytes,
                     void (*instruction)(WarpOperands&));

// As WarpInstruction, of the four warps of the thread's group, whose first thread is `first`; all
// bring the same number.
void WarpgroupInstruction(int number, void (*instruction)(int first, int number));

// Copies that arrive when they are waited for. Zeros where from is null.
void CopyLater(void* to, const void* from, size_t bytes);
void AwaitCopies();

// What the thread has written to shared memory is seen by warpgroups' products after the block's
// next barrier, if all its threads have published and none has awaited a copy in between.
void PublishShared();
std::byte* PublishedBytes();  // shared memory as products see it

// Whether the thread has published since it was last asked, here or by a barrier of the block.
bool TakePublication();
void ShowShared();       // to products, all but what copies of boxes are on their way to
uint64_t BarrierTurn();  // counts the barriers of the block that have passed

}  // namespace hilbert_ring::emulation

// Runs the threads of a CUDA block as fibers, which take turns at barriers and warp-wide
// instructions.
//
// It proves indexing and arithmetic, not speed. It finds a race only if an order of turns shows it:
// warps take turns forwards in one block and backwards in the next. Shared memory begins as NaN.
// Asynchronous copies arrive when a thread awaits them, copies of boxes when all threads wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace hilbert_ring::emulation {

inline constexpr int kWarpThreads = 32;
inline constexpr int kMostOperandBytes = 64;  // of one thread in a warp-wide instruction

// The operands of a warp's threads, and each thread's results.
struct WarpOperands {
  alignas(16) std::byte in[kWarpThreads][kMostOperandBytes];
  alignas(16) std::byte out[kWarpThreads][kMostOperandBytes];
};

// Runs `body` as every thread of block `block` of `blocks`. A system thread runs one block at a
// time; several system threads may run blocks at once.
void RunBlock(unsigned block, unsigned blocks, int threads, size_t shared_bytes,
              const std::function<void()>& body);

// Properties of the calling fiber.
int ThreadOfBlock();
uint64_t BlockNumber();    // counts the system thread's blocks
std::byte* SharedBytes();  // aligned to 1024
size_t SharedSize();

// Lets other threads continue until `ready`. When all threads wait, a copy of a box arrives
// (BringBox); the process fails if there is no copy.
void Pause();
void GoOn();
void LetOthersGoFirst();  // as far as they can
template <typename Ready>
void WaitUntil(const Ready& ready) {
  while (!ready()) Pause();
  GoOn();
}

// Ends the process: the kernel did something illegal.
[[noreturn]] void Fail(const char* what);

// Waits for all unfinished threads of the block. Returns the number of threads with `vote`.
int BlockBarrier(bool vote);

// Brings `bytes` of operands; the last thread of the warp runs `instruction` for all. `name` must
// be equal in all threads: the process fails if they diverge.
void WarpInstruction(const char* name, const void* in, size_t in_bytes, void* out, size_t out_bytes,
                     void (*instruction)(WarpOperands&));

// A WarpInstruction of the thread's four warps from thread `first` on. All bring the same number.
void WarpgroupInstruction(int number, void (*instruction)(int first, int number));

// Copies that arrive when they are awaited. Copies zeros if `from` is null.
void CopyLater(void* to, const void* from, size_t bytes);
void AwaitCopies();

// Warpgroups' products see the thread's writes to shared memory after the block's next barrier, if
// all its threads have published and awaited no copy in between.
void PublishShared();
std::byte* PublishedBytes();  // shared memory as products see it

// Returns whether the thread has published since the last call or the block's last barrier.
bool TakePublication();
void ShowShared();       // to products, except places of copies in progress
uint64_t BarrierTurn();  // counts the barriers of the block that have passed

}  // namespace hilbert_ring::emulation

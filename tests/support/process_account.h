// What a process holds, as the kernel counts it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hilbert_ring::testing {

struct ProcessMemory {
  int64_t anonymous = 0;  // resident bytes
  int64_t shared = 0;     // resident bytes of memory shared with other processes
  int64_t file = 0;       // resident bytes of files, mostly the program itself
  int64_t resident() const { return anonymous + shared + file; }
};

// All 0 for a process that has ended.
ProcessMemory MemoryOf(pid_t pid);

// Resident bytes but for those of files, which whoever runs the same programs maps too; what
// several processes have mapped is shared out among them. 0 for a process that has ended.
int64_t ProportionalBytesOf(pid_t pid);

struct ProcessAccount {
  bool there = false;  // false, and all else 0, for a process that has ended
  bool zombie = false;
  int descriptors = 0;
  int threads = 0;
  int shared_memories = 0;          // memfds of shards that it holds open or has mapped
  int64_t shared_memory_bytes = 0;  // that those which it holds open take, mapped or not
  ProcessMemory memory;
};

ProcessAccount AccountOf(pid_t pid);

// Whether a process is there and no zombie.
bool IsAlive(pid_t pid);

// Children of a process, zombies among them, in ascending order.
std::vector<pid_t> ChildrenOf(pid_t pid);

}  // namespace hilbert_ring::testing

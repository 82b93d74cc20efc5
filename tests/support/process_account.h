#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hilbert_ring::testing {

struct ProcessMemory {
  int64_t anonymous = 0;  // resident bytes
  int64_t shared = 0;
  int64_t file = 0;  // files, mostly the program
  int64_t resident() const { return anonymous + shared + file; }
};

// All 0 for an ended process.
ProcessMemory MemoryOf(pid_t pid);

// Resident bytes except files; memory that several processes map is divided among them. 0 for an
// ended process.
int64_t ProportionalBytesOf(pid_t pid);

struct ProcessAccount {
  bool there = false;  // false for an ended process
  bool zombie = false;
  int descriptors = 0;
  int threads = 0;
  int shared_memories = 0;  // memfds of shards that it holds open or has mapped
  int64_t shared_memory_bytes = 0;
  ProcessMemory memory;
};

ProcessAccount AccountOf(pid_t pid);

// False for zombies.
bool IsAlive(pid_t pid);

// includes zombies, in ascending order
std::vector<pid_t> ChildrenOf(pid_t pid);

}  // namespace hilbert_ring::testing

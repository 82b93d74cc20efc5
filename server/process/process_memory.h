// Memory and descriptors of this process, and memory of the machine.
#pragma once

#include <cstdint>

namespace hilbert_ring::server {

// Keeps freed memory for later messages: page faults would take 78 % of the time of a stream of 4
// MiB messages (two cores of a Zen 4). Call it first in main().
void TuneMalloc();

// Raises the limit of descriptors to the system's: a shell's is below the number of connections.
void RaiseFileLimit();

// Call after a job that moved `bytes`. Returns freed memory to the system, after several small jobs
// at once because a trim and fresh pages take longer than a small job.
void TrimMalloc(int64_t bytes);

int64_t ResidentBytes();  // 0 if unknown

int64_t UsableMemoryBytes();  // of the machine, or the control group's lower limit

}  // namespace hilbert_ring::server

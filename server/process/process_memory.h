// Memory of this process and of the machine.
#pragma once

#include <cstdint>

namespace hilbert_ring::server {

// Keeps memory of freed messages for the next ones instead of unmapping it: page faults would take
// most of the time of a stream of 4 MiB messages (measured: 78 %, on two cores of a Zen 4). Call it
// first in main().
void TuneMalloc();

// After a job that moved so many bytes: gives freed memory back to the system, so that what the job
// took is gone when it ends. Small jobs do so together: a look at all of the heap, and fresh pages
// after it, take longer than such a job.
void TrimMalloc(int64_t bytes);

// Resident bytes of this process; 0 where the system does not say.
int64_t ResidentBytes();

// Memory that this process may use: the machine's, or its control group's limit where that is
// lower.
int64_t UsableMemoryBytes();

}  // namespace hilbert_ring::server

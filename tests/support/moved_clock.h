// moved_clock.cc, among the test's sources, replaces clock_gettime for the test's process.
#pragma once

#include "absl/time/time.h"

namespace hilbert_ring {

// Moves the clock of all threads until the process ends; the steady clock is unchanged. Moving it
// back would hang threads that wait for a later time.
void MoveClockAhead(absl::Duration by);

}  // namespace hilbert_ring

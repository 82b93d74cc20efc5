// A machine whose clock is set while a process runs, in the process of the test itself:
// moved_clock.cc, among the sources of the test, has its clock_gettime.
#pragma once

#include "absl/time/time.h"

namespace hilbert_ring {

// The clock goes ahead for all threads until the process ends; the steady one goes on as ever.
// It does not come back: a thread that waits for a time of the later clock would hang.
void MoveClockAhead(absl::Duration by);

}  // namespace hilbert_ring

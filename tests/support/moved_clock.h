// A machine whose clock is set while a process runs, in the process of the test itself:
// moved_clock.cc, among the sources of the test, has its clock_gettime.
#pragma once

#include "absl/time/time.h"

namespace hilbert_ring {

// While it lives the clock is `by` off, for all threads; the steady one goes on as ever.
class MovedClock {
 public:
  explicit MovedClock(absl::Duration by);
  ~MovedClock();
  MovedClock(const MovedClock&) = delete;
  MovedClock& operator=(const MovedClock&) = delete;
};

}  // namespace hilbert_ring

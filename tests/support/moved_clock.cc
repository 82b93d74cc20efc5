#include "tests/support/moved_clock.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>

namespace {

std::atomic<int64_t> moved_seconds = 0;

}  // namespace

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the system's are reserved
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  using Get = int (*)(clockid_t, timespec*);
  static const auto get = reinterpret_cast<Get>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = get(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += moved_seconds;
  return result;
}

extern "C" int gettimeofday(timeval* time, void* zone) noexcept {
  using Get = int (*)(timeval*, void*);
  static const auto get = reinterpret_cast<Get>(dlsym(RTLD_NEXT, "gettimeofday"));
  const int result = get(time, zone);
  if (result == 0) time->tv_sec += moved_seconds;
  return result;
}

// Abseil waits for a time of the machine's clock, which the kernel has not moved.
extern "C" long syscall(long number, ...) noexcept {
  using Call = long (*)(long, ...);
  static const auto call = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "syscall"));
  va_list list;
  va_start(list, number);
  long words[6];
  for (long& word : words) word = va_arg(list, long);
  va_end(list);
  timespec until = {};
  if (number == SYS_futex && (words[1] & FUTEX_CLOCK_REALTIME) != 0 && words[3] != 0) {
    until = *reinterpret_cast<const timespec*>(words[3]);
    until.tv_sec -= moved_seconds;
    words[3] = reinterpret_cast<long>(&until);
  }
  return call(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

namespace hilbert_ring {

void MoveClockAhead(absl::Duration by) { moved_seconds += absl::ToInt64Seconds(by); }

}  // namespace hilbert_ring

// Random bits of the kernel.
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace hilbert_ring {

// Returns 64 unpredictable bits of the kernel. std::random_device leaves a virtual machine's guest
// each time it is made: 3.6 % of the processor while small jobs were sent (Intel Xeon, 2 cores).
inline uint64_t DrawBits() {
  uint64_t bits = 0;
  ssize_t drawn = 0;
  do {
    drawn = getrandom(&bits, sizeof(bits), 0);
  } while (drawn < 0 && errno == EINTR);
  if (drawn != sizeof(bits)) std::abort();  // the kernel returns up to 256 bytes whole
  return bits;
}

}  // namespace hilbert_ring

// A process may start with standard input, output or error closed. The next file or connection that
// it opens would get the number, and printed text would go there.
#pragma once

#include <fcntl.h>

#include <cerrno>

#include "engine/base/sanitized.h"

namespace hilbert_ring {

// Opens closed streams so that reads and writes still fail. They stay closed without /dev/null.
inline void HoldStandardStreams() {
  for (int stream = 0; stream < 3; ++stream) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // open returns the lowest free number, which is this stream's.
    if (open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY) != stream) return;
  }
}

}  // namespace hilbert_ring

// Stands beside the main of a program. Calls HoldStandardStreams before any library opens a file,
// which gRPC does when it is loaded. A sanitizer must start first.
#ifdef HILBERT_RING_SANITIZED
#define HILBERT_RING_HOLDS_STANDARD_STREAMS \
  [[gnu::constructor]] static void HoldStreams() { hilbert_ring::HoldStandardStreams(); }
#else
#define HILBERT_RING_HOLDS_STANDARD_STREAMS                                            \
  [[gnu::section(".preinit_array"), gnu::used]] static void (*const kHoldsStreams)() = \
      hilbert_ring::HoldStandardStreams;
#endif

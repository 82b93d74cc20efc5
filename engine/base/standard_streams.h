// A process may be started with standard input, output or error closed. The next file or connection
// that it opens would get the number, and whatever is printed would go there.
#pragma once

#include <fcntl.h>

#include <cerrno>

#include "engine/base/sanitized.h"

namespace hilbert_ring {

// Those that are closed are opened so that reading or writing them fails as before. Where /dev/null
// is missing they stay closed.
inline void HoldStandardStreams() {
  for (int stream = 0; stream < 3; ++stream) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest number that is free is this one.
    if (open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY) != stream) return;
  }
}

}  // namespace hilbert_ring

// Beside the main of a program: calls HoldStandardStreams before any library has opened something,
// which gRPC does when it is loaded. A sanitizer has to begin first.
#ifdef HILBERT_RING_SANITIZED
#define HILBERT_RING_HOLDS_STANDARD_STREAMS \
  [[gnu::constructor]] static void HoldStreams() { hilbert_ring::HoldStandardStreams(); }
#else
#define HILBERT_RING_HOLDS_STANDARD_STREAMS                                            \
  [[gnu::section(".preinit_array"), gnu::used]] static void (*const kHoldsStreams)() = \
      hilbert_ring::HoldStandardStreams;
#endif

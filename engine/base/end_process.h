// The end of a process whose libraries have threads of their own. std::exit, and so a return from
// main, races with threads of gRPC: OpenSSL's exit handlers free state that ending threads use. A
// signal ended about 1 of 150 stops right after an overload.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "engine/base/sanitized.h"

namespace hilbert_ring {

// Flushes the streams of <cstdio> and ends all threads at once, without destructors.
[[noreturn]] inline void EndProcess(int status) {
  std::fflush(nullptr);
#ifdef HILBERT_RING_SANITIZED
  std::exit(status);  // the sanitizer reports its findings at exit
#else
  std::_Exit(status);
#endif
}

}  // namespace hilbert_ring

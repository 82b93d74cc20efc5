#include "tests/support/few_threads.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>
#include <limits>

namespace {

// That the calling thread may still start.
thread_local int threads_left = std::numeric_limits<int>::max();

}  // namespace

using Start = void* (*)(void*);

// The system's declaration names its parameters otherwise, with names that are reserved.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, Start start,
                              void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, Start, void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left == 0) return EAGAIN;
  --threads_left;
  return create(thread, attributes, start, argument);
}

namespace hilbert_ring {

FewThreads::FewThreads(int threads) { threads_left = threads; }

FewThreads::~FewThreads() { threads_left = std::numeric_limits<int>::max(); }

}  // namespace hilbert_ring

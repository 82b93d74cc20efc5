// Threads that cannot be started, as where the system has none left, in the process of the test
// itself: few_threads.cc, among the sources of the test, has its pthread_create.
#pragma once

namespace hilbert_ring {

// While it lives the calling thread starts so many threads and no more. Not under the address and
// thread sanitizers, whose own pthread_create must come first.
class FewThreads {
 public:
  explicit FewThreads(int threads);
  ~FewThreads();
  FewThreads(const FewThreads&) = delete;
  FewThreads& operator=(const FewThreads&) = delete;
};

}  // namespace hilbert_ring

// How many descriptors a test may open.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace hilbert_ring {

// Raises this process's limit, and that of processes that it starts from now on, as far as it may.
// Says how many there may be.
inline int RaiseDescriptorLimit() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  rlimit most = files;
  most.rlim_cur = most.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &most) == 0) files = most;
  constexpr rlim_t kGreatest = std::numeric_limits<int>::max();
  return static_cast<int>(std::min(files.rlim_cur, kGreatest));
}

}  // namespace hilbert_ring

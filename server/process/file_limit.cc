#include "server/process/file_limit.h"

#include <sys/resource.h>

namespace hilbert_ring::server {

void RaiseFileLimit() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace hilbert_ring::server

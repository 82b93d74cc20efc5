// hilbert-ring version.

#include <cstdio>

#include "client/cli/commands.h"

namespace hilbert_ring::cli {

int RunVersion(const GlobalOptions& global) {
  if (global.format == OutputFormat::kJson) {
    std::printf("{\"version\": \"%s\"}\n", HILBERT_RING_VERSION);
  } else {
    std::printf("hilbert-ring %s\n", HILBERT_RING_VERSION);
  }
  return kExitOk;
}

}  // namespace hilbert_ring::cli

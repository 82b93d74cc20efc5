// hilbert-ring version.

#include <cstdio>

#include "client/cli/commands.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::cli {

int RunVersion(const GlobalOptions& global) {
  if (global.format == OutputFormat::kJson) {
    std::printf("%s\n", nlohmann::json({{"version", HILBERT_RING_VERSION}}).dump().c_str());
  } else {
    std::printf("hilbert-ring %s\n", HILBERT_RING_VERSION);
  }
  return kExitOk;
}

}  // namespace hilbert_ring::cli

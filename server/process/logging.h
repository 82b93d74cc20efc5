// Log lines go to standard error through spdlog's default logger: spdlog::info("...").
#pragma once

#include <string>

namespace hilbert_ring::server {

// name: of the process, in every line. level: trace, debug, info, warn, error or off.
void StartLogging(const std::string& name, const std::string& level);

}  // namespace hilbert_ring::server

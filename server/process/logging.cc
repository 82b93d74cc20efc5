#include "server/process/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace hilbert_ring::server {

void StartLogging(const std::string& name, const std::string& level) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt(name));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %n[%P] %v");
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
}

}  // namespace hilbert_ring::server

// hilbert-ring-coordinator: takes jobs, shards them over workers, streams their outputs back.
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <system_error>

#include "server/coordinator/coordinator.h"
#include "server/process/file_limit.h"
#include "server/process/logging.h"
#include "server/process/process_memory.h"
#include "server/process/settings.h"
#include "server/process/stop_signals.h"
#include "server/process/threads.h"

namespace hilbert_ring::server {
namespace {

absl::StatusOr<std::unique_ptr<Coordinator>> Start(const CoordinatorSettings& settings) {
  try {  // what lasts as long as the process starts its threads when it is made
    return Coordinator::Start(settings);
  } catch (const std::system_error& error) {
    return NoThreads(error);
  }
}

}  // namespace
}  // namespace hilbert_ring::server

int main(int argc, char** argv) {
  using namespace hilbert_ring::server;
  TuneMalloc();
  BlockStopSignals();
  RaiseFileLimit();
  const auto parsed = ParseCoordinatorSettings(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  const auto& settings = std::get<CoordinatorSettings>(parsed);
  StartLogging("coordinator", settings.log_level, settings.log_format);
  for (const std::string& warning : settings.warnings) spdlog::warn("{}", warning);
  auto coordinator = Start(settings);
  if (!coordinator.ok()) {
    spdlog::critical("{}", std::string(coordinator.status().message()));
    return 1;
  }
  AwaitStopSignal(std::nullopt);
  (*coordinator)->Stop();
  return 0;
}

// hilbert-ring-coordinator: takes jobs, shards them over workers, streams their outputs back.
#include <spdlog/spdlog.h>

#include <chrono>
#include <string>

#include "engine/base/end_process.h"
#include "engine/base/return_if_error.h"
#include "engine/base/standard_streams.h"
#include "server/coordinator/coordinator.h"
#include "server/process/logging.h"
#include "server/process/memory_bounds.h"
#include "server/process/process_memory.h"
#include "server/process/settings.h"
#include "server/process/stop_signals.h"

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::milliseconds kEndLimit{15'000};  // of the shutdown, beside --exit-timeout

absl::Status Run(const CoordinatorSettings& settings) {
  ASSIGN_OR_RETURN(const auto coordinator, Coordinator::Start(settings));
  AwaitStopSignal(std::nullopt);
  LimitStop(settings.exit_timeout + kEndLimit);
  coordinator->Stop();
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  TuneMalloc();
  BlockStopSignals();
  RaiseFileLimit();
  const auto parsed = ParseCoordinatorSettings(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  const auto& settings = std::get<CoordinatorSettings>(parsed);
  StartLogging("coordinator", settings.log_level, settings.log_format);
  for (const std::string& warning : settings.warnings) spdlog::warn("{}", warning);
  spdlog::info("{}", MemoryLine(settings));
  const absl::Status status = Run(settings);
  if (!status.ok()) spdlog::critical("{}", std::string(status.message()));
  FlushLog();
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace hilbert_ring::server

HILBERT_RING_HOLDS_STANDARD_STREAMS

int main(int argc, char** argv) {
  hilbert_ring::EndProcess(hilbert_ring::server::Main(argc, argv));
}

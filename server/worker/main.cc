// hilbert-ring-worker.
#include <spdlog/spdlog.h>

#include <string>
#include <utility>

#include "engine/base/end_process.h"
#include "engine/base/return_if_error.h"
#include "engine/base/standard_streams.h"
#include "server/process/logging.h"
#include "server/process/process_memory.h"
#include "server/process/settings.h"
#include "server/process/stop_signals.h"
#include "server/worker/worker.h"

namespace hilbert_ring::server {
namespace {

absl::Status Run(const WorkerSettings& settings) {
  ASSIGN_OR_RETURN(WorkerDevices devices, MakeWorkerDevices(settings));
  absl::Status self_test = SelfTest(*devices.main);
  ASSIGN_OR_RETURN(const auto worker,
                   Worker::Start(settings, std::move(devices), std::move(self_test)));
  worker->Run();
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  TuneMalloc();
  BlockStopSignals();
  RaiseFileLimit();
  const auto parsed = ParseWorkerSettings(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  const auto& settings = std::get<WorkerSettings>(parsed);
  StartLogging("worker", settings.log_level, settings.log_format);
  for (const std::string& warning : settings.warnings) spdlog::warn("{}", warning);
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

#include "server/worker/run_report.h"

#include <algorithm>

namespace hilbert_ring::server {
namespace {

constexpr size_t kMostRefusalBytes = 128;  // of which the coordinator takes no more

}  // namespace

v1::WorkerReport ReportOf(const WorkerCost& cost, const Figures& figures, const DeviceInfo& device,
                          const RunShard& shard, int64_t resident_bytes) {
  v1::WorkerReport report;
  report.set_device(device.name);
  report.set_kernel(device.kernel);
  report.set_transport(shard.transport);
  report.set_tokens(cost.tokens);
  report.set_memory_peak_bytes(figures.memory_peak_bytes);
  report.set_memory_predicted_bytes(cost.resident_bytes());
  report.set_memory_resident_bytes(std::max<int64_t>(0, resident_bytes));
  report.set_flops(figures.flops);
  report.set_library_flops(figures.library_flops);
  report.set_library_refusal(figures.library_refusal.substr(0, kMostRefusalBytes));
  report.set_flops_predicted(cost.flops);
  report.set_compute_seconds(figures.compute_seconds);
  report.set_exchange_seconds(figures.exchange_seconds);
  report.set_exposed_exchange_seconds(figures.exposed_exchange_seconds);
  report.set_bytes_sent(figures.bytes_sent);
  report.set_bytes_received(figures.bytes_received);
  report.set_bytes_received_predicted(cost.bytes_received);
  report.set_file_bytes_read(shard.input->file_bytes());
  report.set_file_bytes_written(shard.output->file_bytes());
  shard.output->AddTo(report);
  return report;
}

RunFigures FiguresOf(const v1::WorkerReport& report, double receive_seconds) {
  return {.transport = report.transport(),
          .tokens = report.tokens(),
          .flops = report.flops(),
          .flops_planned = report.flops_predicted(),
          .receive_seconds = receive_seconds,
          .compute_seconds = report.compute_seconds(),
          .exchange_seconds = report.exchange_seconds(),
          .exposed_exchange_seconds = report.exposed_exchange_seconds(),
          .bytes_sent = report.bytes_sent(),
          .bytes_received = report.bytes_received(),
          .bytes_received_planned = report.bytes_received_predicted(),
          .memory_peak_bytes = report.memory_peak_bytes(),
          .memory_predicted_bytes = report.memory_predicted_bytes(),
          .file_bytes_read = report.file_bytes_read(),
          .file_bytes_written = report.file_bytes_written()};
}

}  // namespace hilbert_ring::server

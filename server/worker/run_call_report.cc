// Reports of a run: to the coordinator, and in this worker's metrics.
#include <algorithm>

#include "server/worker/run_call.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kMostRefusalBytes = 128;  // the coordinator takes no more

}  // namespace

v1::WorkerReport RunCall::Report() {
  const WorkerCost& cost = work_->cost();
  const DeviceInfo device = lane_->device().info();
  report_.set_device(device.name);
  report_.set_kernel(device.kernel);
  report_.set_transport(shard_->transport);
  report_.set_tokens(cost.tokens);
  report_.set_memory_peak_bytes(figures_->memory_peak_bytes);
  report_.set_memory_predicted_bytes(cost.resident_bytes());
  report_.set_memory_resident_bytes(std::max<int64_t>(0, resident_bytes_ - idle_bytes_));
  report_.set_flops(figures_->flops);
  report_.set_library_flops(figures_->library_flops);
  report_.set_library_refusal(figures_->library_refusal.substr(0, kMostRefusalBytes));
  report_.set_flops_predicted(cost.flops);
  report_.set_compute_seconds(figures_->compute_seconds);
  report_.set_exchange_seconds(figures_->exchange_seconds);
  report_.set_exposed_exchange_seconds(figures_->exposed_exchange_seconds);
  report_.set_bytes_sent(figures_->bytes_sent);
  report_.set_bytes_received(figures_->bytes_received);
  report_.set_bytes_received_predicted(cost.bytes_received);
  report_.set_file_bytes_read(shard_->input->file_bytes());
  report_.set_file_bytes_written(shard_->output->file_bytes());
  shard_->output->AddTo(report_);
  if (spans_) {
    spans_->Note({.kind = v1::Span::KIND_RECEIVE}, course_.entered(RunPhase::kReceiving),
                 course_.entered(RunPhase::kComputing));
    spans_->AddTo(report_);
  }
  return report_;
}

// Called by the executor: the sender may wait for a client that does not read.
void RunCall::TellFailureBeside() {
  const absl::Status failure = course_.failure();
  if (failure.ok() || absl::IsCancelled(failure) || shard_->output->in_place() ||
      context_.IsCancelled()) {
    return;
  }
  v1::RunFailure told;
  told.set_run(open_.run());
  *told.mutable_failed() = FailedOf(failure);
  state_.calls.NoteFailed(std::move(told));
}

void RunCall::Count(const absl::Status& status) const {
  const Deadline stopped = course_.entered(RunPhase::kStopping);
  const bool cancelled = absl::IsCancelled(status) && stopped != Deadline();
  const double cancel_seconds = SecondsBetween(stopped, Clock::now());
  if (cancelled) state_.calls.NoteCancelled(cancel_seconds);
  if (state_.metrics == nullptr) return;
  state_.metrics->CountRun(status.code());
  if (cancelled) state_.metrics->ObserveCancel(cancel_seconds);
  if (!status.ok()) return;
  state_.metrics->ObserveRun(
      {.transport = report_.transport(),
       .tokens = report_.tokens(),
       .flops = report_.flops(),
       .flops_planned = report_.flops_predicted(),
       .receive_seconds = SecondsBetween(course_.entered(RunPhase::kReceiving),
                                         course_.entered(RunPhase::kComputing)),
       .compute_seconds = report_.compute_seconds(),
       .exchange_seconds = report_.exchange_seconds(),
       .exposed_exchange_seconds = report_.exposed_exchange_seconds(),
       .bytes_sent = report_.bytes_sent(),
       .bytes_received = report_.bytes_received(),
       .bytes_received_planned = report_.bytes_received_predicted(),
       .memory_peak_bytes = report_.memory_peak_bytes(),
       .memory_predicted_bytes = report_.memory_predicted_bytes(),
       .file_bytes_read = report_.file_bytes_read(),
       .file_bytes_written = report_.file_bytes_written()});
}

}  // namespace hilbert_ring::server

#include "server/cluster/worker_figures.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "wire/control_characters.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 50;
constexpr int64_t kMostTokens = int64_t{1} << 40;
constexpr double kMostSeconds = 1e9;
constexpr double kMostFlops = 1e30;
constexpr int64_t kMostSteps = int64_t{1} << 40;
constexpr size_t kMostNameBytes = 128;
constexpr int32_t kMostPort = 65535;
constexpr int kMostCancelled = 1024;  // as many as a worker keeps between two beats

// False also for what is not a number.
template <typename Number>
bool Within(Number value, Number most) {
  return value >= 0 && value <= most;
}

class Dropped {
 public:
  template <typename Number>
  Number Figure(std::string_view field, Number value, Number most) {
    if (Within(value, most)) return value;
    fields_.push_back(field);
    return 0;
  }
  void Name(std::string_view field, std::string* name) {
    const bool replaced = wire::ReplaceControls(*name);
    if (replaced || name->size() > kMostNameBytes) fields_.push_back(field);
    if (name->size() <= kMostNameBytes) return;
    name->resize(kMostNameBytes);
    // Not within a character, which protobuf's strings may not end in.
    std::replace_if(
        name->begin(), name->end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  }
  void Field(std::string_view field) { fields_.push_back(field); }
  std::vector<std::string_view> Take() { return std::move(fields_); }

 private:
  std::vector<std::string_view> fields_;
};

}  // namespace

std::vector<std::string_view> DropAbsurd(v1::WorkerReport& r, int most_spans) {
  Dropped d;
  d.Name("device", r.mutable_device());
  d.Name("kernel", r.mutable_kernel());
  d.Name("transport", r.mutable_transport());
  r.set_tokens(d.Figure("tokens", r.tokens(), kMostTokens));
  r.set_memory_peak_bytes(d.Figure("memory_peak_bytes", r.memory_peak_bytes(), kMostBytes));
  r.set_memory_predicted_bytes(
      d.Figure("memory_predicted_bytes", r.memory_predicted_bytes(), kMostBytes));
  r.set_memory_resident_bytes(
      d.Figure("memory_resident_bytes", r.memory_resident_bytes(), kMostBytes));
  r.set_flops(d.Figure("flops", r.flops(), kMostFlops));
  r.set_library_flops(d.Figure("library_flops", r.library_flops(), kMostFlops));
  d.Name("library_refusal", r.mutable_library_refusal());
  r.set_flops_predicted(d.Figure("flops_predicted", r.flops_predicted(), kMostFlops));
  r.set_compute_seconds(d.Figure("compute_seconds", r.compute_seconds(), kMostSeconds));
  r.set_exchange_seconds(d.Figure("exchange_seconds", r.exchange_seconds(), kMostSeconds));
  r.set_exposed_exchange_seconds(
      d.Figure("exposed_exchange_seconds", r.exposed_exchange_seconds(), kMostSeconds));
  r.set_bytes_sent(d.Figure("bytes_sent", r.bytes_sent(), kMostBytes));
  r.set_bytes_received(d.Figure("bytes_received", r.bytes_received(), kMostBytes));
  r.set_bytes_received_predicted(
      d.Figure("bytes_received_predicted", r.bytes_received_predicted(), kMostBytes));
  r.set_file_bytes_read(d.Figure("file_bytes_read", r.file_bytes_read(), kMostBytes));
  r.set_file_bytes_written(d.Figure("file_bytes_written", r.file_bytes_written(), kMostBytes));
  r.set_rows_not_finite(d.Figure("rows_not_finite", r.rows_not_finite(), kMostTokens));
  r.set_first_row_not_finite(
      d.Figure("first_row_not_finite", r.first_row_not_finite(), kMostTokens));
  const auto absurd = [](const v1::Span& span) {
    return !Within(span.begin_seconds(), kMostSeconds) || !Within(span.end_seconds(), kMostSeconds);
  };
  if (r.spans_size() > most_spans || std::any_of(r.spans().begin(), r.spans().end(), absurd)) {
    d.Field("spans");
    r.clear_spans();
  }
  return d.Take();
}

std::vector<std::string_view> DropAbsurd(v1::Heartbeat& h) {
  Dropped d;
  d.Name("device", h.mutable_device());
  d.Name("kernel", h.mutable_kernel());
  d.Name("transport", h.mutable_transport());
  d.Name("version", h.mutable_version());
  h.set_memory_limit_bytes(d.Figure("memory_limit_bytes", h.memory_limit_bytes(), kMostBytes));
  h.set_memory_used_bytes(d.Figure("memory_used_bytes", h.memory_used_bytes(), kMostBytes));
  h.set_memory_resident_bytes(
      d.Figure("memory_resident_bytes", h.memory_resident_bytes(), kMostBytes));
  h.set_http_port(d.Figure("http_port", h.http_port(), kMostPort));
  h.set_threads(d.Figure("threads", h.threads(), kMostWorkerThreads));
  h.set_express_lanes(d.Figure("express_lanes", h.express_lanes(), kMostWorkerThreads));
  auto& seconds = *h.mutable_cancel_seconds();
  if (seconds.size() > kMostCancelled) {
    d.Field("cancel_seconds");
    seconds.Truncate(kMostCancelled);
  }
  const auto absurd = std::remove_if(seconds.begin(), seconds.end(),
                                     [](double s) { return !Within(s, kMostSeconds); });
  if (absurd != seconds.end()) {
    d.Field("cancel_seconds");
    seconds.Truncate(static_cast<int>(absurd - seconds.begin()));
  }
  return d.Take();
}

WorkerShare ShareOf(const v1::WorkerReport& worker) {
  return {.worker = worker.worker(),
          .transport = worker.transport(),
          .flops = worker.flops(),
          .flops_planned = worker.flops_predicted(),
          .compute_seconds = worker.compute_seconds(),
          .bytes_received = worker.bytes_received(),
          .bytes_received_planned = worker.bytes_received_predicted(),
          .memory_peak_bytes = worker.memory_peak_bytes(),
          .memory_predicted_bytes = worker.memory_predicted_bytes()};
}

bool IsAbsurd(const v1::RunProgress& progress) {
  return !Within(progress.fraction(), 1.0) || !Within(progress.waiting_step(), kMostSteps);
}

}  // namespace hilbert_ring::server

#include "tests/service/memory_watch.h"

#include <algorithm>
#include <random>

#include "engine/spec/numbers.h"
#include "tests/random/random_spec.h"
#include "tests/support/process_account.h"
#include "wire/codec.h"

namespace hilbert_ring::testing {

MemoryWatch::MemoryWatch(const Cluster& cluster)
    : coordinator_(cluster.coordinator()), workers_(cluster.Workers()) {
  for (const pid_t pid : workers_) idle_.push_back(MemoryOf(pid).resident());
  peak_ = idle_;
  thread_ = std::thread([this] { Sample(); });
}

void MemoryWatch::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

std::vector<int64_t> MemoryWatch::WorkerPeaks() const {
  std::vector<int64_t> peaks;
  for (size_t i = 0; i < peak_.size(); ++i) peaks.push_back(peak_[i] - idle_[i]);
  std::sort(peaks.begin(), peaks.end());
  return peaks;
}

void MemoryWatch::Sample() {
  while (!stop_) {
    const ProcessMemory memory = MemoryOf(coordinator_);
    coordinator_peak_ = std::max<int64_t>(coordinator_peak_, memory.anonymous + memory.file);
    for (size_t i = 0; i < workers_.size(); ++i) {
      peak_[i] = std::max(peak_[i], MemoryOf(workers_[i]).resident());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void SendConstantRows(RawCall& call, const JobSpec& spec, std::atomic<int64_t>& sent,
                      const std::atomic<bool>& stop) {
  std::mt19937_64 random(1);
  for (const v1::Tensor tensor : {v1::TENSOR_K, v1::TENSOR_V, v1::TENSOR_Q}) {
    const int64_t row_bytes = wire::TensorRowBytes(spec, tensor);
    const int64_t step = wire::kMaxPayloadBytes / row_bytes;
    std::string data(step * row_bytes, '\0');
    const std::vector<float> values =
        RandomValues(step * row_bytes / ElementBytes(spec.dtype), random);
    for (size_t i = 0; i < values.size(); ++i) {
      StoreElement(spec.dtype, data.data(), static_cast<int64_t>(i), values[i]);
    }
    const v1::Chunk whole = MakeChunk(tensor, data, row_bytes, 0, step);
    for (int64_t first = 0; first < spec.tokens && !stop; first += step) {
      const int64_t rows = std::min(step, spec.tokens - first);
      v1::Chunk chunk = rows == step ? whole : MakeChunk(tensor, data, row_bytes, 0, rows);
      chunk.set_first_row(first);
      if (!call.Send(chunk)) return;
      sent += rows;
    }
  }
}

absl::StatusOr<v1::Report> RunConstantJob(v1::AttentionService::Stub& stub, const JobSpec& spec,
                                          std::chrono::milliseconds limit) {
  RawCall call(stub, limit);
  call.Open(spec);
  if (!call.AwaitAdmitted()) return call.Finish();
  std::atomic<int64_t> sent = 0;
  const std::atomic<bool> stop = false;
  std::thread sender([&] {
    SendConstantRows(call, spec, sent, stop);
    call.WritesDone();
  });
  v1::Report report;
  v1::AttendResponse response;
  while (call.Read(&response)) {
    if (response.has_report()) report = response.report();
  }
  sender.join();
  absl::Status status = call.Finish();
  if (!status.ok()) return status;
  return report;
}

}  // namespace hilbert_ring::testing

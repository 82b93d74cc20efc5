#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/worker/run_call.h"
#include "tests/support/typed_run_stream.h"
#include "tests/unit/device/forwarding_device.h"
#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::server::run_call_rig {

class FailingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask>,
                                       const AttendControl&) override {
    return absl::DataLossError("the device failed");
  }
};

inline v1::RunRequest Rows(const JobSpec& spec, v1::Tensor tensor, int64_t rows) {
  v1::RunRequest request;
  v1::ShardRows& message = *request.mutable_rows();
  message.set_tensor(tensor);
  message.set_rows(rows);
  message.set_payload(std::string(rows * wire::TensorRowBytes(spec, tensor), '\0'));
  message.set_crc32c(wire::Crc32c(message.payload()));
  return request;
}

inline v1::RunRequest OpenOf(const JobSpec& spec) {
  v1::RunRequest request;
  v1::RunOpen& open = *request.mutable_open();
  *open.mutable_spec() = wire::EncodeJobSpec(spec);
  open.set_job_id("job");
  open.set_workers(1);
  open.add_shards()->set_end(spec.tokens);
  return request;
}

inline std::unique_ptr<Device> CpuDevice() { return *MakeDevice({.threads = 1}); }

struct OneWorker {
  explicit OneWorker(std::unique_ptr<Device> its_device = CpuDevice(), bool shares = true)
      : device(std::move(its_device)), share_memory(shares) {
    state.lanes.emplace_back(*device);
  }
  absl::Status Serve(RunStream& stream) {
    grpc::ServerContext context;
    return RunCall(state, context, stream).Serve();
  }

  const std::unique_ptr<Device> device;
  const bool share_memory;
  WorkerState state{.memory = JobMemory(int64_t{64} << 20),
                    .rings = RingTable(MakeRingTransport("127.0.0.1")),
                    .share_memory = share_memory,
                    .feed_timeout = std::chrono::hours(1)};
};

class ScriptedStream : public testing::TypedRunStream {  // gives out the messages
 public:
  explicit ScriptedStream(std::vector<v1::RunRequest> requests) : requests_(std::move(requests)) {}
  bool Next(v1::RunRequest& request) override {
    if (next_ == requests_.size()) return false;
    request = requests_[next_++];
    return true;
  }

 private:
  const std::vector<v1::RunRequest> requests_;
  size_t next_ = 0;
};

// Notes the responses.
class NotingStream : public ScriptedStream {
 public:
  using ScriptedStream::ScriptedStream;
  bool TakeResponse(const v1::RunResponse& response, grpc::WriteOptions options) override {
    responses_.push_back(response.message_case());
    last_ = options.is_last_message();
    return true;
  }
  const std::vector<v1::RunResponse::MessageCase>& responses() const { return responses_; }
  bool last() const { return last_; }  // the last response leaves with the status

 private:
  std::vector<v1::RunResponse::MessageCase> responses_;
  bool last_ = false;
};

}  // namespace hilbert_ring::server::run_call_rig

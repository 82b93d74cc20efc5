// One job at a worker, over a stream in memory.
#include "server/worker/run_call.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "gtest/gtest.h"
#include "server/worker/ring_transport.h"
#include "tests/plain_spec.h"
#include "tests/unit/device/forwarding_device.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

class FailingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask>,
                                       const AttendControl&) override {
    return absl::DataLossError("the device failed");
  }
};

// Gives out the messages, then waits until the worker has said that it failed, as a coordinator
// does whose client still sends.
class OpenStream : public RunStream {
 public:
  explicit OpenStream(std::vector<v1::RunRequest> requests) : requests_(std::move(requests)) {}
  void SendInitialMetadata() override {}
  bool NextMessageSize(uint32_t* size) override {
    *size = wire::kMaxMessageBytes;
    return true;
  }
  bool Read(v1::RunRequest* request) override {
    std::unique_lock lock(mutex_);
    if (next_ < requests_.size()) {
      *request = requests_[next_++];
      return true;
    }
    told_before_end_ =
        changed_.wait_for(lock, std::chrono::seconds(20), [this] { return failed_.has_value(); });
    return false;
  }
  bool Write(const v1::RunResponse& response, grpc::WriteOptions) override {
    const std::lock_guard lock(mutex_);
    if (response.has_failed()) failed_ = response.failed();
    changed_.notify_all();
    return true;
  }
  bool told_before_end() const { return told_before_end_; }
  const std::optional<v1::RunFailed>& failed() const { return failed_; }

 private:
  const std::vector<v1::RunRequest> requests_;
  size_t next_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<v1::RunFailed> failed_;
  bool told_before_end_ = false;
};

v1::RunRequest Rows(const JobSpec& spec, v1::Tensor tensor, int64_t rows) {
  v1::RunRequest request;
  v1::ShardRows& message = *request.mutable_rows();
  message.set_tensor(tensor);
  message.set_rows(rows);
  message.set_payload(std::string(rows * wire::TensorRowBytes(spec, tensor), '\0'));
  message.set_crc32c(wire::Crc32c(message.payload()));
  return request;
}

TEST(RunCall, SaysThatItFailedBeforeAllRowsHaveCome) {
  const JobSpec spec = testing::PlainSpec(
      {.tokens = 32'768, .heads = 1, .dim = 8, .segment = 64});  // several windows
  const Plan plan = *MakePlan(spec, 1);
  std::vector<v1::RunRequest> requests(1);
  v1::RunOpen& open = *requests[0].mutable_open();
  *open.mutable_spec() = wire::EncodeJobSpec(spec);
  open.set_job_id("job");
  open.set_workers(1);
  open.add_shards()->set_end(spec.tokens);
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    requests.push_back(Rows(spec, tensor, spec.tokens / 2));
  }
  OpenStream stream(std::move(requests));
  FailingDevice device(*MakeDevice({.threads = 1}));
  JobMemory memory(int64_t{64} << 20);
  RingTable rings{MakeRingTransport({.host = "127.0.0.1"})};
  Lane lane(device);
  ActiveCalls calls;
  WorkerState state{.lane = lane,
                    .express_lane = lane,
                    .memory = memory,
                    .share_memory = true,
                    .feed_timeout = std::chrono::hours(1),
                    .rings = rings,
                    .calls = calls};
  grpc::ServerContext context;
  EXPECT_FALSE(RunCall(state, context, stream).Serve().ok());
  EXPECT_TRUE(stream.told_before_end());
  ASSERT_TRUE(stream.failed().has_value());
  EXPECT_EQ(stream.failed()->code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(stream.failed()->message(), "the device failed");
}

}  // namespace
}  // namespace hilbert_ring::server

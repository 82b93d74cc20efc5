#include "server/worker/run_call.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "tests/unit/device/forwarding_device.h"
#include "tests/unit/worker/run_call_rig.h"

namespace hilbert_ring::server {
namespace {

using run_call_rig::FailingDevice;
using run_call_rig::OneWorker;
using run_call_rig::OpenOf;
using run_call_rig::Rows;
using run_call_rig::ScriptedStream;

// A job of several stretches.
const JobSpec kSpec = PlainSpec({.tokens = 32'768, .heads = 1, .dim = 8, .segment = 64});

std::vector<v1::RunRequest> Requests() {
  std::vector<v1::RunRequest> requests = {OpenOf(kSpec)};
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    requests.push_back(Rows(kSpec, tensor, kSpec.tokens));
  }
  requests.emplace_back().mutable_done();
  return requests;
}

// Gives out the messages, then waits for the worker's failure, like a coordinator whose client
// still sends.
class OpenStream : public ScriptedStream {
 public:
  using ScriptedStream::ScriptedStream;
  bool Next(v1::RunRequest& request) override {
    if (ScriptedStream::Next(request)) return true;
    std::unique_lock lock(mutex_);
    told_before_end_ =
        changed_.wait_for(lock, std::chrono::seconds(20), [this] { return failed_.has_value(); });
    return false;
  }
  bool TakeResponse(const v1::RunResponse& response, grpc::WriteOptions /*options*/) override {
    const std::lock_guard lock(mutex_);
    if (response.has_failed()) failed_ = response.failed();
    changed_.notify_all();
    return true;
  }
  bool told_before_end() const { return told_before_end_; }
  const std::optional<v1::RunFailed>& failed() const { return failed_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<v1::RunFailed> failed_;
  bool told_before_end_ = false;
};

// Takes the first output after the coordinator has the failure.
class FullStream : public ScriptedStream {
 public:
  using ScriptedStream::ScriptedStream;
  bool TakeResponse(const v1::RunResponse& response, grpc::WriteOptions /*options*/) override {
    if (!response.has_output()) return true;
    std::unique_lock lock(mutex_);
    full_ = true;
    changed_.notify_all();
    return changed_.wait_for(lock, kLimit, [this] { return failure_known_; });
  }
  bool AwaitFull() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLimit, [this] { return full_; });
  }
  void NoteFailure() {
    const std::lock_guard lock(mutex_);
    failure_known_ = true;
    changed_.notify_all();
  }
  bool failure_known() {
    const std::lock_guard lock(mutex_);
    return failure_known_;
  }

 private:
  static constexpr std::chrono::seconds kLimit{20};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool full_ = false, failure_known_ = false;
};

class LaterFailingDevice : public ForwardingDevice {
 public:
  LaterFailingDevice(std::unique_ptr<Device> device, FullStream& stream)
      : ForwardingDevice(std::move(device)), stream_(stream) {}
  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                       const AttendControl& control) override {
    if (std::exchange(first_, false)) return ForwardingDevice::Attend(tasks, control);
    stream_.AwaitFull();
    return absl::DataLossError("the device failed");
  }

 private:
  FullStream& stream_;
  bool first_ = true;
};

TEST(RunCall, SaysThatItFailedWhileItsOutputsAreNotTaken) {
  std::vector<v1::RunRequest> requests = Requests();
  requests[0].mutable_open()->set_run(7);
  FullStream stream(std::move(requests));
  LaterFailingDevice device(*MakeDevice({.threads = 1}), stream);
  OneWorker worker(device);
  worker.state.calls.SetOnFailure([&] { stream.NoteFailure(); });
  grpc::ServerContext context;
  EXPECT_TRUE(absl::IsDataLoss(RunCall(worker.state, context, stream).Serve()));
  EXPECT_TRUE(stream.failure_known());
  const v1::Heartbeat news = worker.state.calls.TakeNews();
  ASSERT_EQ(news.failures_size(), 1);
  EXPECT_EQ(news.failures(0).run(), 7u);
  EXPECT_EQ(news.failures(0).failed().code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(news.failures(0).failed().message(), "the device failed");
  EXPECT_EQ(worker.state.calls.TakeNews().failures_size(), 0);
}

TEST(RunCall, SaysThatItFailedBeforeAllRowsHaveCome) {
  std::vector<v1::RunRequest> requests = {OpenOf(kSpec)};
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    requests.push_back(Rows(kSpec, tensor, kSpec.tokens / 2));
  }
  OpenStream stream(std::move(requests));
  FailingDevice device(*MakeDevice({.threads = 1}));
  OneWorker worker(device);
  grpc::ServerContext context;
  EXPECT_FALSE(RunCall(worker.state, context, stream).Serve().ok());
  EXPECT_TRUE(stream.told_before_end());
  ASSERT_TRUE(stream.failed().has_value());
  EXPECT_EQ(stream.failed()->code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(stream.failed()->message(), "the device failed");
}

class NotingWork : public RunWork {
 public:
  NotingWork(const RunWork& like, const JobMemory& memory, int64_t& reserved_at_end)
      : RunWork(like.shape(), like.plan(), like.rank()),
        memory_(memory),
        reserved_at_end_(reserved_at_end) {}
  ~NotingWork() override { reserved_at_end_ = memory_.used(); }
  absl::Status Prepare(Device&, const std::function<bool()>&) override {
    return absl::InternalError("no");
  }
  absl::StatusOr<Figures> Execute(ShardStore&, Device&, Communicator*, int64_t,
                                  const WorkControl&) override {
    return absl::InternalError("no");
  }

 private:
  const JobMemory& memory_;
  int64_t& reserved_at_end_;
};

TEST(RunCall, AJobsMemoryIsFreeBeforeItsReservation) {
  const v1::RunRequest open = OpenOf(PlainSpec({.tokens = 64}));
  v1::RunRequest request = open;
  request.mutable_open()->mutable_encode();
  OpenStream stream({request});
  const auto device = *MakeDevice({.threads = 1});
  OneWorker worker(*device);
  int64_t reserved_at_end = 0;
  worker.state.make_encode = [&](const v1::RunOpen&,
                                 int) -> absl::StatusOr<std::unique_ptr<RunWork>> {
    return std::make_unique<NotingWork>(**MakeAttentionRun(open.open()), worker.state.memory,
                                        reserved_at_end);
  };
  grpc::ServerContext context;
  EXPECT_TRUE(absl::IsInternal(RunCall(worker.state, context, stream).Serve()));
  EXPECT_GT(reserved_at_end, 0);
  EXPECT_EQ(worker.state.memory.used(), 0);
}

class EndlessDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask>,
                                       const AttendControl& control) override {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!control.cancelled()) {
      if (std::chrono::steady_clock::now() > limit) return absl::DataLossError("never cancelled");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return absl::CancelledError("cancelled");
  }
};

TEST(RunCall, TheLimitOfComputeBeginsWithTheLastRowNotWithTheLastStretch) {
  std::vector<v1::RunRequest> requests = Requests();
  requests[0].mutable_open()->set_compute_timeout_ms(100);
  OpenStream stream(std::move(requests));
  EndlessDevice device(*MakeDevice({.threads = 1}));
  OneWorker worker(device);
  grpc::ServerContext context;
  const absl::Status status = RunCall(worker.state, context, stream).Serve();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

}  // namespace
}  // namespace hilbert_ring::server

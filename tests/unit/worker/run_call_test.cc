#include "server/worker/run_call.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/support/plain_spec.h"
#include "tests/unit/device/forwarding_device.h"
#include "tests/unit/worker/run_call_rig.h"

namespace hilbert_ring::server {
namespace {

using run_call_rig::CpuDevice;
using run_call_rig::FailingDevice;
using run_call_rig::NotingStream;
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
  OneWorker worker(std::make_unique<LaterFailingDevice>(CpuDevice(), stream));
  worker.state.calls.SetOnFailure([&] { stream.NoteFailure(); });
  EXPECT_TRUE(absl::IsDataLoss(worker.Serve(stream)));
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
  OneWorker worker(std::make_unique<FailingDevice>(CpuDevice()));
  EXPECT_FALSE(worker.Serve(stream).ok());
  EXPECT_TRUE(stream.told_before_end());
  ASSERT_TRUE(stream.failed().has_value());
  EXPECT_EQ(stream.failed()->code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(stream.failed()->message(), "the device failed");
}

// Its job fails before compute.
class FailingWork : public RunWork {
 public:
  FailingWork(const v1::RunOpen& open, std::function<absl::Status()> read,
              std::function<void()> end)
      : FailingWork(**MakeAttentionRun(open)) {
    read_ = std::move(read);
    end_ = std::move(end);
  }
  ~FailingWork() override { end_(); }
  absl::Status Read(const std::function<bool()>&) override { return read_(); }
  absl::Status Prepare(Device&, const std::function<bool()>&) override {
    return absl::InternalError("no");
  }
  absl::StatusOr<Figures> Execute(ShardStore&, Device&, Communicator*, int64_t,
                                  const WorkControl&) override {
    return absl::InternalError("no");
  }

 private:
  explicit FailingWork(const RunWork& like) : RunWork(like.shape(), like.plan(), like.rank()) {}

  std::function<absl::Status()> read_;
  std::function<void()> end_;
};

TEST(RunCall, AJobsMemoryIsFreeBeforeItsReservation) {
  const v1::RunRequest open = OpenOf(PlainSpec({.tokens = 64}));
  v1::RunRequest request = open;
  request.mutable_open()->mutable_encode();
  OpenStream stream({request});
  OneWorker worker;
  int64_t reserved_at_end = 0;
  worker.state.make_encode = [&](const v1::RunOpen&,
                                 int) -> absl::StatusOr<std::unique_ptr<RunWork>> {
    return std::make_unique<FailingWork>(
        open.open(), [] { return absl::OkStatus(); },
        [&] { reserved_at_end = worker.state.memory.used(); });
  };
  EXPECT_TRUE(absl::IsInternal(worker.Serve(stream)));
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
  OneWorker worker(std::make_unique<EndlessDevice>(CpuDevice()));
  const absl::Status status = worker.Serve(stream);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

struct ShortJob {
  ShortJob() {
    const ShardLayout layout(plan, 0);
    const auto created = SharedMemory::Create(layout.bytes());
    EXPECT_TRUE(created.ok()) << created.status();
    memory = *created;
    rows.emplace(memory->data(), layout);
    for (const TensorKind kind : {TensorKind::kQ, TensorKind::kK, TensorKind::kV}) {
      auto* const values = reinterpret_cast<float*>(rows->Row(kind, 0));
      std::fill_n(values, spec.tokens * spec.heads * spec.head_dim, 1.0f);
    }
  }
  std::vector<v1::RunRequest> Requests() const {
    std::vector<v1::RunRequest> requests = {OpenOf(spec)};
    *requests[0].mutable_open()->mutable_shared_memory() = memory->offer();
    requests.emplace_back().mutable_done();
    return requests;
  }

  std::vector<v1::RunRequest> RequestWithRows() const {
    std::vector<v1::RunRequest> requests = Requests();
    requests.pop_back();
    requests[0].mutable_open()->set_rows_there(true);
    return requests;
  }

  const JobSpec spec = PlainSpec();
  const Plan plan = *MakePlan(spec, 1);
  std::shared_ptr<SharedMemory> memory;
  std::optional<HostShard> rows;
};

TEST(RunCall, AShortJobHasNoThreadButItsCalls) {
  const ShortJob job;
  NotingStream stream(job.Requests());
  OneWorker worker;
  const absl::Status status = worker.Serve(stream);
  EXPECT_TRUE(status.ok()) << status;
  using Response = v1::RunResponse;
  EXPECT_EQ(stream.responses(), (std::vector{Response::kReady, Response::kComputed,
                                             Response::kFinal, Response::kFigures}));
  EXPECT_TRUE(stream.last());
  EXPECT_EQ(worker.state.threads.count(), 0);
  EXPECT_EQ(*reinterpret_cast<const float*>(job.rows->Row(TensorKind::kOut, 63)), 1.0f);
}

TEST(RunCall, AJobWhoseModelIsNotReadLeavesTheDeviceToOthers) {
  const ShortJob job;
  OneWorker worker;
  absl::Notification asked, answered;
  worker.state.make_encode = [&](const v1::RunOpen&,
                                 int) -> absl::StatusOr<std::unique_ptr<RunWork>> {
    return std::make_unique<FailingWork>(
        job.Requests()[0].open(),
        [&] {
          asked.Notify();
          answered.WaitForNotificationWithTimeout(absl::Seconds(20));
          return absl::InternalError("no");
        },
        [] {});
  };
  std::vector<v1::RunRequest> requests = job.Requests();
  requests[0].mutable_open()->mutable_encode();
  std::jthread hung([&] {
    NotingStream stream(requests);
    EXPECT_TRUE(absl::IsInternal(worker.Serve(stream)));
  });
  ASSERT_TRUE(asked.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_EQ(worker.state.memory.used(), 0);
  NotingStream stream(job.Requests());
  const absl::Status status = worker.Serve(stream);
  EXPECT_FALSE(answered.HasBeenNotified());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(stream.responses().back(), v1::RunResponse::kFigures);
  answered.Notify();
}

TEST(RunCall, AShortJobWhoseRowsAreThereIsAnsweredInOneMessage) {
  const ShortJob job;
  NotingStream stream(job.RequestWithRows());
  OneWorker worker;
  const absl::Status status = worker.Serve(stream);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(stream.responses(), std::vector{v1::RunResponse::kWhole});
  EXPECT_TRUE(stream.last());
  EXPECT_EQ(worker.state.threads.count(), 0);
  EXPECT_EQ(*reinterpret_cast<const float*>(job.rows->Row(TensorKind::kOut, 63)), 1.0f);
}

TEST(RunCall, AShortJobReportsItsFailure) {
  const ShortJob job;
  for (const bool rows_there : {false, true}) {
    NotingStream stream(rows_there ? job.RequestWithRows() : job.Requests());
    OneWorker worker(std::make_unique<FailingDevice>(CpuDevice()));
    EXPECT_TRUE(absl::IsDataLoss(worker.Serve(stream)));
    EXPECT_EQ(stream.responses().back(), v1::RunResponse::kFailed);
    EXPECT_EQ(stream.responses().size(), rows_there ? 1U : 2U);
  }
}

// Rows of `rows_there` are in the offered memory alone.
TEST(RunCall, AWorkerThatTakesNoMemoryAwaitsItsRowsThoughTheyAreThere) {
  const ShortJob job;
  std::vector<v1::RunRequest> requests = job.RequestWithRows();
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    requests.push_back(Rows(job.spec, tensor, job.spec.tokens));
  }
  requests.emplace_back().mutable_done();
  NotingStream stream(std::move(requests));
  OneWorker worker(CpuDevice(), /*shares=*/false);
  const absl::Status status = worker.Serve(stream);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(stream.responses().front(), v1::RunResponse::kReady);
  EXPECT_EQ(stream.responses().back(), v1::RunResponse::kFigures);
}

TEST(RunCall, AShortJobWhoseRowsDoNotComeEndsCancelled) {
  const ShortJob job;
  std::vector<v1::RunRequest> requests = job.Requests();
  requests.pop_back();
  NotingStream stream(std::move(requests));
  OneWorker worker;
  EXPECT_TRUE(absl::IsCancelled(worker.Serve(stream)));
  EXPECT_EQ(worker.state.calls.TakeNews().cancel_seconds_size(), 1);
}

TEST(Lane, TakesOneJobAtATime) {
  const auto device = CpuDevice();
  Lane lane(*device);
  Lane::Turn first = lane.AwaitTurn(std::chrono::milliseconds(0));
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(lane.AwaitTurn(std::chrono::milliseconds(5)), nullptr);
  first.reset();
  EXPECT_NE(lane.AwaitTurn(std::chrono::milliseconds(0)), nullptr);
}

}  // namespace
}  // namespace hilbert_ring::server

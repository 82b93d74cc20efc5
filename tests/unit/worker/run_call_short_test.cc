#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/worker/run_call.h"
#include "tests/support/plain_spec.h"
#include "tests/unit/worker/run_call_rig.h"

namespace hilbert_ring::server {
namespace {

using run_call_rig::FailingDevice;
using run_call_rig::NotingStream;
using run_call_rig::OneWorker;
using run_call_rig::OpenOf;
using run_call_rig::Rows;

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
  const auto device = *MakeDevice({.threads = 1});
  OneWorker worker(*device);
  grpc::ServerContext context;
  const absl::Status status = RunCall(worker.state, context, stream).Serve();
  EXPECT_TRUE(status.ok()) << status;
  using Response = v1::RunResponse;
  EXPECT_EQ(stream.responses(), (std::vector{Response::kReady, Response::kComputed,
                                             Response::kFinal, Response::kFigures}));
  EXPECT_TRUE(stream.last());
  EXPECT_EQ(worker.state.threads.count(), 0);
  EXPECT_EQ(*reinterpret_cast<const float*>(job.rows->Row(TensorKind::kOut, 63)), 1.0f);
}

class HungWork : public RunWork {
 public:
  HungWork(const RunWork& like, absl::Notification& asked, absl::Notification& answered)
      : RunWork(like.shape(), like.plan(), like.rank()), asked_(asked), answered_(answered) {}
  absl::Status Read(const std::function<bool()>&) override {
    asked_.Notify();
    answered_.WaitForNotificationWithTimeout(absl::Seconds(20));
    return absl::InternalError("no");
  }
  absl::StatusOr<Figures> Execute(ShardStore&, Device&, Communicator*, int64_t,
                                  const WorkControl&) override {
    return absl::InternalError("no");
  }

 private:
  absl::Notification& asked_;
  absl::Notification& answered_;
};

TEST(RunCall, AJobWhoseModelIsNotReadLeavesTheDeviceToOthers) {
  const ShortJob job;
  const auto device = *MakeDevice({.threads = 1});
  OneWorker worker(*device);
  absl::Notification asked, answered;
  worker.state.make_encode = [&](const v1::RunOpen&,
                                 int) -> absl::StatusOr<std::unique_ptr<RunWork>> {
    return std::make_unique<HungWork>(**MakeAttentionRun(job.Requests()[0].open()), asked,
                                      answered);
  };
  std::vector<v1::RunRequest> requests = job.Requests();
  requests[0].mutable_open()->mutable_encode();
  std::jthread hung([&] {
    NotingStream stream(requests);
    grpc::ServerContext context;
    EXPECT_TRUE(absl::IsInternal(RunCall(worker.state, context, stream).Serve()));
  });
  ASSERT_TRUE(asked.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_EQ(worker.state.memory.used(), 0);
  NotingStream stream(job.Requests());
  grpc::ServerContext context;
  const absl::Status status = RunCall(worker.state, context, stream).Serve();
  EXPECT_FALSE(answered.HasBeenNotified());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(stream.responses().back(), v1::RunResponse::kFigures);
  answered.Notify();
}

TEST(RunCall, AShortJobWhoseRowsAreThereIsAnsweredInOneMessage) {
  const ShortJob job;
  NotingStream stream(job.RequestWithRows());
  const auto device = *MakeDevice({.threads = 1});
  OneWorker worker(*device);
  grpc::ServerContext context;
  const absl::Status status = RunCall(worker.state, context, stream).Serve();
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
    FailingDevice device(*MakeDevice({.threads = 1}));
    OneWorker worker(device);
    grpc::ServerContext context;
    EXPECT_TRUE(absl::IsDataLoss(RunCall(worker.state, context, stream).Serve()));
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
  const auto device = *MakeDevice({.threads = 1});
  OneWorker worker(*device, /*shares=*/false);
  grpc::ServerContext context;
  const absl::Status status = RunCall(worker.state, context, stream).Serve();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(stream.responses().front(), v1::RunResponse::kReady);
  EXPECT_EQ(stream.responses().back(), v1::RunResponse::kFigures);
}

TEST(RunCall, AShortJobWhoseRowsDoNotComeEndsCancelled) {
  const ShortJob job;
  std::vector<v1::RunRequest> requests = job.Requests();
  requests.pop_back();
  NotingStream stream(std::move(requests));
  const auto device = *MakeDevice({.threads = 1});
  OneWorker worker(*device);
  grpc::ServerContext context;
  EXPECT_TRUE(absl::IsCancelled(RunCall(worker.state, context, stream).Serve()));
  EXPECT_EQ(worker.state.calls.TakeNews().cancel_seconds_size(), 1);
}

}  // namespace
}  // namespace hilbert_ring::server

// Processes: start, readiness, signals, cancellation, and what is served beside jobs.
#include <signal.h>

#include <thread>

#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/process_account.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

bool DieWithin(const std::vector<pid_t>& pids, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < end) {
    bool alive = false;
    for (const pid_t pid : pids) alive = alive || IsAlive(pid);
    if (!alive) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(Lifecycle, SigtermStopsEverything) {
  auto cluster = Cluster::Start({.workers = 3});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::vector<pid_t> workers = (*cluster)->Workers();
  EXPECT_EQ(workers.size(), 3u);
  EXPECT_EQ((*cluster)->Stop(), absl::OkStatus());
  EXPECT_TRUE(DieWithin(workers, std::chrono::seconds(2)));
}

TEST(Lifecycle, NoOrphanSurvivesAKilledCoordinator) {
  auto cluster = Cluster::Start({.workers = 2});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const std::vector<pid_t> workers = (*cluster)->Workers();
  ASSERT_EQ(workers.size(), 2u);
  kill((*cluster)->coordinator(), SIGKILL);
  EXPECT_TRUE(DieWithin(workers, std::chrono::seconds(5)));
}

TEST(Lifecycle, HttpAndMetrics) {
  auto cluster = Cluster::Start({.workers = 2});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_TRUE((*cluster)->HttpGet("/livez").ok());
  EXPECT_TRUE((*cluster)->HttpGet("/readyz").ok());
  EXPECT_FALSE((*cluster)->HttpGet("/nothing").ok());
  const JobSpec spec = PlainSpec({.tokens = 256});
  auto stub = (*cluster)->Stub();
  ASSERT_TRUE(AttendRaw(*stub, spec, RandomInputs(spec, 1), 50, 1).ok());
  const auto metrics = (*cluster)->Metrics();
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_THAT(*metrics, HasSubstr("hilbert_ring_jobs_total{code=\"OK\"} 1"));
  EXPECT_THAT(*metrics, HasSubstr("hilbert_ring_tokens_total 256"));
  EXPECT_THAT(*metrics, HasSubstr("hilbert_ring_workers_up 2"));
  for (const char* name :
       {"hilbert_ring_job_seconds_bucket", "hilbert_ring_received_bytes_total",
        "hilbert_ring_sent_bytes_total", "hilbert_ring_exchanged_bytes_total",
        "hilbert_ring_worker_memory_used_bytes", "hilbert_ring_worker_memory_peak_bytes",
        "hilbert_ring_worker_memory_predicted_bytes"}) {
    EXPECT_THAT(*metrics, HasSubstr(name));
  }
}

absl::Status TryToRegister(const std::string& address) {
  const auto stub = v1::MembershipService::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const auto stream = stub->Register(&context);
  v1::Heartbeat beat;
  beat.set_address("127.0.0.1:1");
  beat.set_version("0.0.0");
  stream->Write(beat);
  return wire::FromGrpc(stream->Finish());
}

// Neither on the public port nor without the token that its own workers were given.
TEST(Lifecycle, StrangersDoNotBecomeWorkers) {
  auto cluster = Cluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(TryToRegister((*cluster)->address()).code(), absl::StatusCode::kUnimplemented);
  const absl::Status refused = TryToRegister((*cluster)->membership_address());
  EXPECT_TRUE(absl::IsUnauthenticated(refused)) << refused;
  EXPECT_EQ(wire::ReasonOf(refused), "JOIN_TOKEN");
}

TEST(Lifecycle, ClusterShowsWorkersAndRings) {
  auto cluster = Cluster::Start({.workers = 2});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  const JobSpec spec = PlainSpec({.tokens = 256});
  ASSERT_TRUE(AttendRaw(*stub, spec, RandomInputs(spec, 1), 50, 1).ok());
  grpc::ClientContext context;
  v1::GetClusterResponse response;
  ASSERT_TRUE(stub->GetCluster(&context, {}, &response).ok());
  ASSERT_EQ(response.workers_size(), 2);
  EXPECT_NE(response.workers(0).address(), response.workers(1).address());
  EXPECT_EQ(response.workers(0).state(), v1::ClusterWorker::STATE_UP);
  EXPECT_GT(response.workers(0).memory_limit_bytes(), 0);
  ASSERT_EQ(response.rings_size(), 1);
  EXPECT_EQ(response.rings(0).members_size(), 2);
}

TEST(Lifecycle, CancelFreesTheWorkersForTheNextJob) {
  auto cluster = Cluster::Start({.workers = 2});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  const JobSpec spec = PlainSpec({.tokens = 60'000});  // seconds of compute
  const EngineInputs inputs = RandomInputs(spec, 1);
  {
    RawCall call(*stub, std::chrono::seconds(60));
    ASSERT_TRUE(call.Open(spec));
    ASSERT_TRUE(call.AwaitAdmitted());
    for (const auto& [tensor, data] : EncodeTensors(spec, inputs)) {
      for (int64_t first = 0; first < spec.tokens; first += 20'000) {
        ASSERT_TRUE(call.Send(MakeChunk(tensor, data, 2 * 16 * 4, first, 20'000)));
      }
    }
    call.WritesDone();
    v1::AttendResponse response;
    while (call.Read(&response) && response.progress().phase() != v1::Progress::PHASE_COMPUTE) {
    }
    call.Cancel();
    EXPECT_TRUE(absl::IsCancelled(call.Finish()));
  }
  const auto start = std::chrono::steady_clock::now();
  const JobSpec small = PlainSpec({.tokens = 128});
  const auto next = AttendRaw(*stub, small, RandomInputs(small, 2), 50, 1);
  EXPECT_TRUE(next.ok()) << next.status();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  // A ring that a cancelled job used is given up, and the next one is a newer generation.
  EXPECT_GT(next->report.ring_generation(), 0);
}

TEST(Lifecycle, DeadlineEndsTheJob) {
  auto cluster = Cluster::Start({.workers = 2});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  bool admitted = false;  // before its deadline, for which a busy machine may need a later one
  for (auto limit = std::chrono::milliseconds(400); !admitted; limit *= 2) {
    ASSERT_LT(limit, std::chrono::seconds(60));
    RawCall call(*stub, limit);
    admitted = call.Open(PlainSpec()) && call.AwaitAdmitted();
    EXPECT_TRUE(absl::IsDeadlineExceeded(call.Finish()));
  }
}

TEST(Lifecycle, JobsQueueAndAllFinish) {
  auto cluster = Cluster::Start({.workers = 2});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  std::vector<std::thread> threads;
  threads.reserve(6);
  std::atomic<int> good = 0;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      auto stub = (*cluster)->Stub();
      const JobSpec spec = PlainSpec({.tokens = 300 + i});
      good += AttendRaw(*stub, spec, RandomInputs(spec, i), 64, i).ok();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 6);
}

// As many jobs at once as a worker has threads.
TEST(Lifecycle, SmallJobsAreComputedAtOnceOnAWorkerOfManyThreads) {
  auto cluster = Cluster::Start({.workers = 1, .arguments = {"--worker-threads=4"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  std::vector<std::unique_ptr<RawCall>> running;
  for (int i = 0; i < 4; ++i) {
    running.push_back(std::make_unique<RawCall>(*stub, std::chrono::seconds(30)));
    ASSERT_TRUE(running.back()->Open(PlainSpec()));
    ASSERT_TRUE(running.back()->AwaitAdmitted()) << i;
  }
  RawCall waiting(*stub, std::chrono::seconds(30));
  ASSERT_TRUE(waiting.Open(PlainSpec()));
  v1::AttendResponse response;
  ASSERT_TRUE(waiting.Read(&response));
  EXPECT_TRUE(response.has_queued());
  running.pop_back();
  EXPECT_TRUE(waiting.AwaitAdmitted());
}

TEST(Lifecycle, FullQueueIsRefusedWithPushback) {
  auto cluster = Cluster::Start({.workers = 1, .arguments = {"--max-queue=1"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  RawCall running(*stub, std::chrono::seconds(30));
  ASSERT_TRUE(running.Open(PlainSpec()));
  ASSERT_TRUE(running.AwaitAdmitted());
  RawCall beside(*stub, std::chrono::seconds(30));  // on the express lane
  ASSERT_TRUE(beside.Open(PlainSpec()));
  ASSERT_TRUE(beside.AwaitAdmitted());
  RawCall waiting(*stub, std::chrono::seconds(30));
  ASSERT_TRUE(waiting.Open(PlainSpec()));
  v1::AttendResponse response;
  ASSERT_TRUE(waiting.Read(&response));
  EXPECT_TRUE(response.has_queued());
  RawCall refused(*stub, std::chrono::seconds(30));
  refused.Open(PlainSpec());
  EXPECT_TRUE(absl::IsResourceExhausted(refused.Finish()));
}

TEST(Lifecycle, AJobThatCanNeverFitIsRefusedBeforeAnyByte) {
  auto cluster = Cluster::Start({.workers = 1, .arguments = {"--memory-limit=64MiB"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  RawCall call(*stub, std::chrono::seconds(30));
  call.Open(PlainSpec({.tokens = 4'000'000}));
  const absl::Status status = call.Finish();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("workers"));
}

// A worker dies with rows of the job; the caller sees nothing of it.
void ExpectSurvivesADeadWorker(const std::vector<std::string>& arguments, bool before_rows) {
  auto cluster = Cluster::Start({.workers = 2, .arguments = arguments});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  const JobSpec spec = PlainSpec({.tokens = 3000});
  const EngineInputs inputs = RandomInputs(spec, 5);
  const auto undisturbed = AttendRaw(*stub, spec, inputs, 500, 1);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.status();
  RawCall call(*stub, std::chrono::seconds(30));
  ASSERT_TRUE(call.Open(spec));
  ASSERT_TRUE(call.AwaitAdmitted());
  const auto victim = (*cluster)->Workers().at(0);
  if (before_rows) kill(victim, SIGKILL);
  for (const auto& [tensor, data] : EncodeTensors(spec, inputs)) {
    for (int64_t first = 0; first < spec.tokens; first += 500) {
      ASSERT_TRUE(call.Send(MakeChunk(tensor, data, 2 * 16 * 4, first, 500)));
    }
    if (!before_rows && tensor == v1::TENSOR_K) kill(victim, SIGKILL);
  }
  call.WritesDone();
  const auto result = call.Collect(spec);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->report.retries(), 1);
  // As many workers merge partial results in the same order, fewer of them in theirs.
  const auto workers = result->report.workers_size();
  if (workers == undisturbed->report.workers_size()) {
    EXPECT_EQ(result->result.out, undisturbed->result.out);
    return;
  }
  auto fewer = Cluster::Start({.workers = workers});
  ASSERT_TRUE(fewer.ok()) << fewer.status();
  const auto expected = AttendRaw(*(*fewer)->Stub(), spec, inputs, 500, 1);
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(result->result.out, expected->result.out);
}

TEST(Lifecycle, AJobSurvivesADeadWorker) {
  ExpectSurvivesADeadWorker({}, true);
  ExpectSurvivesADeadWorker({}, false);
}

TEST(Lifecycle, AJobSurvivesADeadWorkerFromCopiesOfItsRows) {
  ExpectSurvivesADeadWorker({"--share-memory=false"}, true);
  ExpectSurvivesADeadWorker({"--share-memory=false"}, false);
}

// Whether the coordinator has taken rows of the one job that there is.
bool AwaitTaken(v1::AttentionService::Stub& stub) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < limit) {
    grpc::ClientContext context;
    v1::ListJobsResponse jobs;
    const bool listed = stub.ListJobs(&context, {}, &jobs).ok();
    if (listed && jobs.jobs_size() == 1 && jobs.jobs(0).fraction() > 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(Lifecycle, RowsThatNobodyHoldsAnymoreEndTheJob) {
  auto cluster =
      Cluster::Start({.workers = 2, .arguments = {"--share-memory=false", "--copy-memory=0"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  const JobSpec spec = PlainSpec({.tokens = 3000});
  RawCall call(*stub, std::chrono::seconds(60));
  ASSERT_TRUE(call.Open(spec));
  ASSERT_TRUE(call.AwaitAdmitted());
  const auto tensors = EncodeTensors(spec, RandomInputs(spec, 5));
  ASSERT_TRUE(call.Send(MakeChunk(v1::TENSOR_Q, tensors.at(v1::TENSOR_Q), 2 * 16 * 4, 0, 3000)));
  ASSERT_TRUE(AwaitTaken(*stub));
  kill((*cluster)->Workers().at(0), SIGKILL);
  const absl::Status status = call.Finish();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(wire::ReasonOf(status), "ROWS_LOST");
  const auto next = AttendRaw(*stub, spec, RandomInputs(spec, 2), 500, 1);
  EXPECT_TRUE(next.ok()) << next.status();
}

TEST(Lifecycle, RowsThatAClosedClientCannotSendAgainAreLost) {
  auto cluster =
      Cluster::Start({.workers = 2, .arguments = {"--share-memory=false", "--copy-memory=0"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  const JobSpec spec = PlainSpec({.tokens = 60'000});  // seconds of compute
  RawCall call(*stub, std::chrono::seconds(60));
  v1::AttendRequest open;
  *open.mutable_open()->mutable_spec() = wire::EncodeJobSpec(spec);
  open.mutable_open()->set_can_resend(true);
  ASSERT_TRUE(call.Write(open));
  ASSERT_TRUE(call.AwaitAdmitted());
  for (const auto& [tensor, data] : EncodeTensors(spec, RandomInputs(spec, 5))) {
    for (int64_t first = 0; first < spec.tokens; first += 20'000) {
      ASSERT_TRUE(call.Send(MakeChunk(tensor, data, 2 * 16 * 4, first, 20'000)));
    }
  }
  call.WritesDone();  // though it has said that it can send rows again
  v1::AttendResponse response;
  while (call.Read(&response) && response.progress().phase() != v1::Progress::PHASE_COMPUTE) {
  }
  kill((*cluster)->Workers().at(0), SIGKILL);
  const absl::Status status = call.Finish();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(wire::ReasonOf(status), "ROWS_LOST");
}

}  // namespace
}  // namespace hilbert_ring::testing

// What streams without end hold, and how they end: lost workers, clients and coordinators, wrong
// messages, refusals.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/expected_rows.h"
#include "tests/service/stream_call.h"
#include "tests/support/plain_spec.h"
#include "tests/support/process_account.h"
#include "tests/support/sanitizer.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

JobSpec Stream(int64_t segment = 64, int64_t dim = 16) {
  return PlainSpec({.tokens = 0, .dim = dim, .segment = segment});
}

// Of "name{labels} value"; -1 where it is not there.
int64_t Metric(const Cluster& cluster, const std::string& series) {
  const auto page = cluster.HttpGet("/metrics");
  EXPECT_TRUE(page.ok()) << page.status();
  for (const absl::string_view line : absl::StrSplit(page.value_or(""), '\n')) {
    double value = 0;
    if (absl::StartsWith(line, absl::StrCat(series, " ")) &&
        absl::SimpleAtod(line.substr(series.size() + 1), &value)) {
      return static_cast<int64_t>(value);
    }
  }
  return -1;
}

int64_t HeldBytes(const Cluster& cluster) {
  return Metric(cluster, "hilbert_ring_coordinator_memory_used_bytes{account=\"streams\"}");
}

std::vector<v1::Job> Jobs(v1::AttentionService::Stub& stub) {
  grpc::ClientContext context;
  v1::ListJobsResponse jobs;
  const grpc::Status status = stub.ListJobs(&context, {}, &jobs);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return {jobs.jobs().begin(), jobs.jobs().end()};
}

template <typename Condition>
bool Eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + seconds(30);
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return false;
}

// Nothing of a stream is left, and the next one runs.
void ExpectFree(const Cluster& cluster) {
  auto stub = cluster.Stub();
  EXPECT_TRUE(Eventually([&] { return Jobs(*stub).empty() && HeldBytes(cluster) == 0; }));
  const auto report = StreamConstantRows(cluster, Stream(), 1000, {.epoch_tokens = 256});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->tokens(), 1000);
}

class RawStream : public RawCall {
 public:
  explicit RawStream(v1::AttentionService::Stub& stub)
      : RawCall(stub, seconds(120), Method::kAttendStream) {}

  // Rows of zeros of one tensor of Stream().
  bool SendRows(v1::Tensor tensor, int64_t first, int64_t rows, const JobSpec& spec = Stream()) {
    const int64_t row_bytes = wire::TensorRowBytes(spec, tensor);
    v1::Chunk chunk = MakeChunk(tensor, std::string(rows * row_bytes, '\0'), row_bytes, 0, rows);
    chunk.set_first_row(first);
    return Send(chunk);
  }

  bool SendAll(int64_t first, int64_t rows, const JobSpec& spec = Stream()) {
    for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
      if (!SendRows(tensor, first, rows, spec)) return false;
    }
    return true;
  }

  // Of epochs of so many tokens.
  bool OpenEpochs(int64_t epoch_tokens, const JobSpec& spec = Stream(),
                  const std::string& job_id = "stream") {
    v1::AttendRequest request;
    *request.mutable_open()->mutable_spec() = wire::EncodeJobSpec(spec);
    request.mutable_open()->set_epoch_tokens(epoch_tokens);
    request.mutable_open()->set_job_id(job_id);
    return Write(request);
  }

  // The report of a stream that ends well.
  absl::StatusOr<v1::Report> Report() {
    v1::AttendResponse response;
    v1::Report report;
    while (Read(&response)) {
      if (response.has_report()) report = response.report();
    }
    absl::Status status = Finish();
    if (!status.ok()) return status;
    return report;
  }
};

TEST(StreamCourse, AStreamMayHaveNoRows) {
  auto cluster = Cluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  RawStream call(*stub);
  ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted());
  call.WritesDone();
  const auto report = call.Report();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->job_id(), "stream");
  EXPECT_EQ(report->tokens(), 0);
  EXPECT_EQ(report->epochs(), 0);
  ExpectFree(**cluster);
}

TEST(StreamCourse, AStreamWithoutItsFirstRowsHoldsNoMemoryForLong) {
  auto cluster = Cluster::Start({.workers = 1, .arguments = {"--open-timeout=0.2"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  RawStream call(*stub);
  ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted());
  EXPECT_TRUE(Eventually([&] { return HeldBytes(**cluster) == 0; }));
  ASSERT_TRUE(call.SendAll(0, 100));
  EXPECT_TRUE(Eventually([&] { return HeldBytes(**cluster) > 0; }));
  call.WritesDone();
  const auto report = call.Report();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->tokens(), 100);
  ExpectFree(**cluster);
}

// Each of its own call: what the stream ends with.
TEST(StreamCourse, WrongRowsEndIt) {
  auto cluster = Cluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  const auto ends = [&](const auto& send, const std::string& reason, const std::string& message) {
    RawStream call(*stub);
    ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted());
    send(call);
    const absl::Status status = call.Finish();
    EXPECT_EQ(wire::ReasonOf(status), reason) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  ends([](RawStream& call) { call.SendRows(v1::TENSOR_Q, 5, 10); }, "ROWS_OUT_OF_ORDER",
       "Q: first_row is 5, the next row of the stream is 0");
  ends(
      [](RawStream& call) {
        call.SendAll(0, 200);  // an epoch and a half
        call.SendRows(v1::TENSOR_V, 0, 10);
      },
      "TENSOR_AHEAD", "Q: would be 200 rows ahead of another tensor, the limit is an epoch's 128");
  ends(
      [](RawStream& call) {
        call.SendAll(0, 100);
        call.SendRows(v1::TENSOR_K, 50, 50);
      },
      "ROWS_OUT_OF_ORDER", "K: first_row is 50, the next row of the stream is 100");
  ends(
      [](RawStream& call) {
        v1::Chunk chunk;
        chunk.set_tensor(v1::TENSOR_Q);
        chunk.set_rows(3);
        chunk.set_payload("short");
        call.Send(chunk);
      },
      "CHUNK_MISSHAPEN", "payload has 5 bytes");
  ends([](RawStream& call) { call.OpenEpochs(128); }, "INVALID_OPEN",
       "after Open a client sends chunks alone");
  ends(
      [](RawStream& call) {
        call.SendAll(0, 100);
        call.SendRows(v1::TENSOR_Q, 100, 1);
        call.WritesDone();
      },
      "CHUNK_MISSING", "the stream ended with 101 rows of Q and 100 of K");
  ExpectFree(**cluster);
}

TEST(StreamCourse, RefusesWhatAStreamHasNot) {
  auto cluster = Cluster::Start(
      {.workers = 1, .arguments = {"--stream-epoch-memory=1MiB", "--stream-memory=3MiB"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  const auto refused = [&](const auto& change, const std::string& reason,
                           const std::string& message) {
    v1::AttendRequest request;
    *request.mutable_open()->mutable_spec() = wire::EncodeJobSpec(Stream());
    change(*request.mutable_open());
    RawStream call(*stub);
    call.Write(request);
    const absl::Status status = call.Finish();
    EXPECT_EQ(wire::ReasonOf(status), reason) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  refused([](v1::Open& open) { open.mutable_spec()->set_tokens(64); }, "INVALID_SPEC",
          "tokens is 64, but a stream without end has no count of tokens");
  refused([](v1::Open& open) { open.mutable_encode()->set_model("m"); }, "INVALID_OPEN",
          "Open has encode, which AttendStream does not take");
  refused([](v1::Open& open) { open.add_files()->set_path("q.npy"); }, "INVALID_OPEN",
          "files: a stream's rows are sent");
  refused([](v1::Open& open) { open.set_want_trace(true); }, "INVALID_OPEN", "want_trace");
  refused(
      [](v1::Open& open) {
        v1::Ordering& ordering = *open.mutable_spec()->mutable_ordering();
        ordering.set_curve(v1::CURVE_HILBERT);
        ordering.set_scope(v1::ORDER_SCOPE_QKV);
        ordering.add_grid(8);
        ordering.add_grid(8);
      },
      "INVALID_SPEC", "ordering.grid: a stream without end has no grid");
  refused([](v1::Open& open) { open.set_epoch_tokens(65); }, "INVALID_OPEN",
          "epoch_tokens is 65, must be a multiple of 64");
  refused([](v1::Open& open) { open.mutable_spec()->set_segments(0, 1 << 20); }, "DOES_NOT_FIT",
          "has 1048576 tokens, whose rows and outputs take 536870912 bytes; the limit is 1048576 "
          "bytes (--stream-epoch-memory)");
  // Two streams of two epochs of 1 MiB each are more than 3 MiB.
  RawStream first(*stub), second(*stub);
  ASSERT_TRUE(first.OpenEpochs(0) && first.AwaitAdmitted());
  EXPECT_GT(HeldBytes(**cluster), 3 * kMiB / 2);
  second.OpenEpochs(0, Stream(), "second");
  const absl::Status status = second.Finish();
  EXPECT_EQ(wire::ReasonOf(status), "STREAM_MEMORY") << status;
  EXPECT_TRUE(second.pushback_ms().has_value());
  first.Cancel();
  EXPECT_TRUE(absl::IsCancelled(first.Finish()));
  EXPECT_TRUE(Eventually([&] { return HeldBytes(**cluster) == 0; }));
}

// Many times what the workers may hold: epochs are as small as their memory asks for.
TEST(StreamCourse, MemoryIsThatOfEpochsWhateverTheLength) {
  auto cluster = Cluster::Start({.workers = 1, .arguments = {"--memory-limit=20MiB"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  constexpr int64_t kRows = 25 * 20 * kMiB / 512;  // q, k, v and out have 128 bytes each
  std::vector<pid_t> processes = (*cluster)->Workers();
  processes.push_back((*cluster)->coordinator());
  const auto resident = [&processes] {
    int64_t bytes = 0;
    for (const pid_t pid : processes) bytes += MemoryOf(pid).resident();
    return bytes;
  };
  int64_t early = 0, late = 0, held = 0, most_tokens = 0;
  const auto report = StreamConstantRows(
      **cluster, Stream(), kRows, {.block_rows = 1000, .epoch = [&](const v1::Epoch& epoch) {
                                     most_tokens = std::max(most_tokens, epoch.report().tokens());
                                     int64_t& peak = epoch.first_token() < kRows / 4 ? early : late;
                                     peak = std::max(peak, resident());
                                     held = std::max(held, HeldBytes(**cluster));
                                   }});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->tokens(), kRows);
  EXPECT_GE(report->epochs(), 25);
  EXPECT_LE(most_tokens * 512, 20 * kMiB);
  EXPECT_LE(held, 2 * most_tokens * 512);
  RecordProperty("early", std::to_string(early));
  RecordProperty("late", std::to_string(late));
  if (kResidentBytesAreTheSanitizers) return;
  // Three quarters of the stream, 375 MiB, pass without leaving anything: what moves is the
  // transport's buffers.
  EXPECT_LT(late, early + 8 * kMiB);
  ExpectFree(**cluster);
}

TEST(StreamCourse, AClientThatDoesNotReadIsNotReadFrom) {
  auto cluster = Cluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  const JobSpec spec = Stream(64, 128);            // rows of 1 KiB of each tensor
  constexpr int64_t kEpoch = 4096, kEpochs = 100;  // 12 MiB of input, 4 of output each
  RawStream call(*stub);
  ASSERT_TRUE(call.OpenEpochs(kEpoch, spec) && call.AwaitAdmitted());
  std::atomic<int64_t> sent = 0;
  std::atomic<bool> all = false;
  std::thread sender([&] {
    while (sent < kEpochs * kEpoch && call.SendAll(sent, 1024, spec)) sent += 1024;
    all = true;
    call.WritesDone();
  });
  // Until it has stood still for a while.
  for (int64_t before = -1; before != sent;) {
    before = sent;
    std::this_thread::sleep_for(seconds(1));
  }
  const int64_t stuck = sent;
  EXPECT_FALSE(all);
  // Two epochs are done, whose outputs wait; two are held; the transport holds some MiB.
  EXPECT_LT(stuck, 10 * kEpoch);
  const std::vector<v1::Job> jobs = Jobs(*stub);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_TRUE(jobs[0].stream());
  EXPECT_LE(jobs[0].epochs(), 4);
  EXPECT_EQ(jobs[0].tokens(), jobs[0].epochs() * kEpoch);
  // It goes on when it is read from.
  const auto report = call.Report();
  sender.join();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->epochs(), kEpochs);
  EXPECT_EQ(report->bytes_sent(), kEpochs * kEpoch * 1024);
  EXPECT_EQ(report->bytes_received(), 3 * kEpochs * kEpoch * 1024);
}

TEST(StreamCourse, AWorkerMayBeLost) {
  const std::vector<std::vector<std::string>> cases = {
      {}, {"--share-memory=false", "--copy-memory=1"}};  // rows are read again from the stream's
  for (const std::vector<std::string>& arguments : cases) {
    auto cluster = Cluster::Start({.workers = 2, .arguments = arguments});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    JobSpec job = PlainSpec({.tokens = 5000, .segment = 256});
    const EngineInputs inputs = RandomInputs(job, 3);
    int epochs = 0;
    const auto streamed =
        AttendInStream(**cluster, job, StreamOf(job), inputs,
                       {.epoch_tokens = 512, .block_rows = 300, .epoch = [&](const v1::Epoch&) {
                          if (++epochs == 3 || epochs == 6)
                            kill((*cluster)->Workers().front(), SIGKILL);
                        }});
    ASSERT_TRUE(streamed.ok()) << streamed.status();
    EXPECT_EQ(streamed->report.epochs(), 10);
    const auto expected = ExpectRows(job, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(Mismatch(job, streamed->result, *expected), "");
  }
}

// Without a worker an epoch is tried when members come or go, not again and again.
TEST(StreamCourse, AnEpochWaitsForAWorkerWithoutJobs) {
  auto cluster = Cluster::Start({.workers = 1, .place = WorkerPlace::kBeside});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  RawStream call(*stub);
  ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted());
  kill((*cluster)->Workers().front(), SIGKILL);
  ASSERT_TRUE(Eventually([&] {
    const auto described = (*cluster)->Describe();
    return described.ok() && described->workers().empty();
  }));
  ASSERT_TRUE(call.SendAll(0, 128));
  std::this_thread::sleep_for(seconds(2));
  const int64_t failed = Metric(**cluster, "hilbert_ring_jobs_total{code=\"UNAVAILABLE\"}");
  EXPECT_TRUE(failed == 1 || failed == 2) << failed;
  ASSERT_TRUE((*cluster)->StartEnded().ok());
  call.WritesDone();
  const auto report = call.Report();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->tokens(), 128);
}

TEST(StreamCourse, AClientThatIsGoneLeavesNothing) {
  auto cluster = Cluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  for (const int64_t rows : {0, 100, 1000}) {
    RawStream call(*stub);
    ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted());
    for (int64_t row = 0; row < rows; row += 100) ASSERT_TRUE(call.SendAll(row, 100));
    ASSERT_EQ(Jobs(*stub).size(), 1U);
    EXPECT_GT(HeldBytes(**cluster), 0);
    call.Cancel();
    EXPECT_TRUE(absl::IsCancelled(call.Finish()));
    ExpectFree(**cluster);
  }
}

TEST(StreamCourse, ItIsListedAndCancelledAsAJob) {
  auto cluster = Cluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  RawStream call(*stub);
  ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted());
  ASSERT_TRUE(call.SendAll(0, 128) && call.SendAll(128, 128) && call.SendAll(256, 50));
  v1::AttendResponse response;
  std::vector<int64_t> epochs;
  while (epochs.size() < 2 && call.Read(&response)) {
    if (response.has_epoch()) epochs.push_back(response.epoch().first_token());
  }
  EXPECT_EQ(epochs, (std::vector<int64_t>{0, 128}));
  const std::vector<v1::Job> jobs = Jobs(*stub);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].job_id(), "stream");
  EXPECT_EQ(jobs[0].epochs(), 2);
  EXPECT_EQ(jobs[0].tokens(), 256);
  EXPECT_TRUE(Eventually([&] { return Jobs(*stub).at(0).state() == v1::Job::STATE_RECEIVING; }));
  RawStream again(*stub);
  again.OpenEpochs(128);
  EXPECT_EQ(wire::ReasonOf(again.Finish()), "JOB_RUNNING");
  grpc::ClientContext context;
  v1::CancelJobRequest request;
  request.set_job_id("stream");
  v1::CancelJobResponse cancelled;
  EXPECT_TRUE(stub->CancelJob(&context, request, &cancelled).ok());
  EXPECT_EQ(wire::ReasonOf(call.Finish()), "CANCELLED_BY_CALLER");
  ExpectFree(**cluster);
  // Of two streams, each counted as its epochs' jobs.
  EXPECT_EQ(Metric(**cluster, "hilbert_ring_tokens_total"), 256 + 1000);
}

TEST(StreamCourse, ASilentClientLosesItsStream) {
  auto cluster = Cluster::Start({.workers = 1, .arguments = {"--idle-timeout=1"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  RawStream call(*stub);
  ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted() && call.SendAll(0, 100));
  EXPECT_EQ(wire::ReasonOf(call.Finish()), "CLIENT_IDLE");
  ExpectFree(**cluster);
}

TEST(StreamCourse, ADeadCoordinatorIsATypedError) {
  auto cluster = Cluster::Start({.workers = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto report = StreamConstantRows(
      **cluster, Stream(), 1'000'000, {.epoch_tokens = 256, .epoch = [&](const v1::Epoch& epoch) {
                                         if (epoch.first_token() == 1024)
                                           kill((*cluster)->coordinator(), SIGKILL);
                                       }});
  EXPECT_TRUE(absl::IsUnavailable(report.status())) << report.status();
}

TEST(StreamCourse, ACoordinatorThatStopsEndsItSoon) {
  auto cluster = Cluster::Start({.workers = 1, .arguments = {"--exit-timeout=0.2"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  RawStream call(*stub);
  ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted() && call.SendAll(0, 100));
  EXPECT_TRUE((*cluster)->Stop().ok());
  EXPECT_EQ(wire::ReasonOf(call.Finish()), "DRAINING");
}

TEST(StreamCourse, RowsThatAreCheckedAreCounted) {
  auto cluster = Cluster::Start({.workers = 2, .arguments = {"--check-rows=8"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto report =
      StreamConstantRows(**cluster, Stream(), 1000, {.epoch_tokens = 256, .block_rows = 300});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->epochs(), 4);
  EXPECT_EQ(report->rows_checked(), 32);
}

}  // namespace
}  // namespace hilbert_ring::testing

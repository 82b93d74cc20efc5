// What streams without end hold, which rows they take, and what they refuse.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/raw_stream.h"
#include "tests/service/stream_call.h"
#include "tests/support/process_account.h"
#include "tests/support/sanitizer.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

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
  auto cluster = Cluster::Start({.workers = 1, .arguments = {"--open-timeout=2"}});
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
      {.workers = 1,
       .arguments = {"--stream-epoch-memory=1MiB", "--stream-memory=3MiB", "--open-timeout=60"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  const auto refused = [&](const auto& change, const std::string& reason,
                           const std::string& message) {
    v1::AttendRequest request;
    *request.mutable_open()->mutable_spec() = wire::EncodeJobSpec(StreamSpec());
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
  second.OpenEpochs(0, StreamSpec(), "second");
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
  const auto report =
      StreamConstantRows(**cluster, StreamSpec(), kRows,
                         {.block_rows = 1000, .epoch = [&](const v1::Epoch& epoch) {
                            most_tokens = std::max(most_tokens, epoch.report().tokens());
                            int64_t& peak = epoch.first_token() < kRows / 4 ? early : late;
                            peak = std::max(peak, resident());
                            held = std::max(held, HeldBytes((*cluster)->HttpGet("/metrics")));
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
  const JobSpec spec = StreamSpec(64, 128);        // rows of 1 KiB of each tensor
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

TEST(StreamCourse, ASilentClientLosesItsStream) {
  auto cluster = Cluster::Start({.workers = 1, .arguments = {"--idle-timeout=4"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto stub = (*cluster)->Stub();
  RawStream call(*stub);
  ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted() && call.SendAll(0, 100));
  EXPECT_EQ(wire::ReasonOf(call.Finish()), "CLIENT_IDLE");
  ExpectFree(**cluster);
}

TEST(StreamCourse, RowsThatAreCheckedAreCounted) {
  auto cluster = Cluster::Start({.workers = 2, .arguments = {"--check-rows=8"}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto report =
      StreamConstantRows(**cluster, StreamSpec(), 1000, {.epoch_tokens = 256, .block_rows = 300});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->epochs(), 4);
  EXPECT_EQ(report->rows_checked(), 32);
}

}  // namespace
}  // namespace hilbert_ring::testing

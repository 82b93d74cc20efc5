#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/raw_stream.h"
#include "tests/service/stream_call.h"
#include "tests/support/await.h"
#include "tests/support/process_account.h"
#include "tests/support/sanitizer.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(StreamCourse, AStreamWithoutItsFirstRowsHoldsNoMemoryForLong) {
  const auto cluster = Cluster::Start({.workers = 1, .arguments = {"--open-timeout=2"}}).value();
  auto stub = cluster->Stub();
  RawStream call(*stub);
  ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted());
  EXPECT_TRUE(Await([&] { return HeldBytes(*cluster) == 0; }));
  ASSERT_TRUE(call.SendAll(0, 100));
  EXPECT_TRUE(Await([&] { return HeldBytes(*cluster) > 0; }));
  call.WritesDone();
  const auto report = call.Report();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->tokens(), 100);
  ExpectFree(*cluster);
}

TEST(StreamCourse, WrongRowsEndIt) {
  const auto cluster = Cluster::Start({.workers = 1}).value();
  const auto stub = cluster->Stub();
  const auto ends = [&](const auto& send, const std::string& reason) {
    RawStream call(*stub);
    ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted());
    send(call);
    EXPECT_EQ(wire::ReasonOf(call.Finish()), reason);
  };
  ends([](RawStream& call) { call.SendRows(v1::TENSOR_Q, 5, 10); }, "CHUNK_MISSHAPEN");
  ends([](RawStream& call) { call.OpenEpochs(128); }, "INVALID_OPEN");
  ends(
      [](RawStream& call) {
        call.SendAll(0, 100);
        call.SendRows(v1::TENSOR_Q, 100, 1);
        call.WritesDone();
      },
      "CHUNK_MISSING");
  ExpectFree(*cluster);
}

TEST(StreamCourse, RefusesOptionsThatAStreamLacks) {
  const auto cluster =
      Cluster::Start({.workers = 1, .arguments = {"--stream-memory=16MiB", "--open-timeout=60"}})
          .value();
  const auto stub = cluster->Stub();
  const auto refused = [&](const auto& change, const std::string& message) {
    v1::AttendRequest request;
    *request.mutable_open()->mutable_spec() = wire::EncodeJobSpec(StreamSpec());
    change(*request.mutable_open());
    RawStream call(*stub);
    call.Write(request);
    EXPECT_THAT(std::string(call.Finish().message()), HasSubstr(message));
  };
  refused([](v1::Open& open) { open.mutable_spec()->set_tokens(64); }, "tokens is 64");
  refused([](v1::Open& open) { open.mutable_encode()->set_model("m"); }, "encode");
  refused([](v1::Open& open) { open.add_files()->set_path("q.npy"); }, "files");
  refused([](v1::Open& open) { open.set_want_trace(true); }, "want_trace");
  refused([](v1::Open& open) { open.mutable_spec()->set_segments(0, 1 << 20); },
          "a sixteenth of --stream-memory");
  // Four streams of two epochs of 1 MiB each take half of the memory, the limit of a caller.
  std::vector<std::unique_ptr<RawStream>> streams;
  for (int i = 0; i < 5; ++i) {
    streams.push_back(std::make_unique<RawStream>(*stub));
    const bool open = streams.back()->OpenEpochs(0, StreamSpec(), std::to_string(i)) &&
                      streams.back()->AwaitAdmitted();
    ASSERT_EQ(open, i < 4) << i;
  }
  EXPECT_GT(HeldBytes(*cluster), 4 * 3 * kMiB / 2);
  EXPECT_EQ(wire::ReasonOf(streams[4]->Finish()), "WAITING_MEMORY");
  EXPECT_TRUE(streams[4]->retry_after_ms().has_value());
  for (int i = 0; i < 4; ++i) {
    streams[i]->Cancel();
    EXPECT_TRUE(absl::IsCancelled(streams[i]->Finish()));
  }
  EXPECT_TRUE(Await([&] { return HeldBytes(*cluster) == 0; }));
}

// The stream is many times the workers' memory: the epochs become small enough.
TEST(StreamCourse, MemoryIsThatOfEpochsAtAnyLength) {
  const auto cluster =
      Cluster::Start({.workers = 1, .arguments = {"--memory-limit=20MiB"}}).value();
  constexpr int64_t kRows = 25 * 20 * kMiB / 512;  // q, k, v and out have 128 bytes each
  std::vector<pid_t> processes = cluster->Workers();
  processes.push_back(cluster->coordinator());
  const auto resident = [&processes] {
    int64_t bytes = 0;
    for (const pid_t pid : processes) bytes += MemoryOf(pid).resident();
    return bytes;
  };
  int64_t early = 0, late = 0, held = 0, most_tokens = 0;
  const auto report =
      StreamConstantRows(*cluster, StreamSpec(), kRows,
                         {.block_rows = 1000, .epoch = [&](const v1::Epoch& epoch) {
                            most_tokens = std::max(most_tokens, epoch.report().tokens());
                            int64_t& peak = epoch.first_token() < kRows / 4 ? early : late;
                            peak = std::max(peak, resident());
                            held = std::max(held, HeldBytes(cluster->HttpGet("/metrics")));
                          }});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->tokens(), kRows);
  EXPECT_GE(report->epochs(), 25);
  EXPECT_LE(most_tokens * 512, 20 * kMiB);
  EXPECT_LE(held, 2 * most_tokens * 512);
  RecordProperty("early", std::to_string(early));
  RecordProperty("late", std::to_string(late));
  if (kResidentBytesAreTheSanitizers) return;
  // Three quarters of the stream, 375 MiB, leave nothing; the transport's buffers vary.
  EXPECT_LT(late, early + 8 * kMiB);
  ExpectFree(*cluster);
}

TEST(StreamCourse, TheServiceStopsReadingFromAClientThatDoesNotRead) {
  const auto cluster = Cluster::Start({.workers = 1}).value();
  auto stub = cluster->Stub();
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
  for (int64_t before = -1; before != sent;) {
    before = sent;
    std::this_thread::sleep_for(seconds(1));
  }
  const int64_t stuck = sent;
  EXPECT_FALSE(all);
  // Two epochs are done and their outputs wait; two are held; the transport holds some MiB.
  EXPECT_LT(stuck, 10 * kEpoch);
  const std::vector<v1::Job> jobs = Jobs(*stub);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_TRUE(jobs[0].stream());
  EXPECT_LE(jobs[0].epochs(), 4);
  EXPECT_EQ(jobs[0].tokens(), jobs[0].epochs() * kEpoch);
  const auto report = call.Report();
  sender.join();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->epochs(), kEpochs);
  EXPECT_EQ(report->bytes_sent(), kEpochs * kEpoch * 1024);
  EXPECT_EQ(report->bytes_received(), 3 * kEpochs * kEpoch * 1024);
}

TEST(StreamCourse, ASilentClientLosesItsStream) {
  const auto cluster = Cluster::Start({.workers = 1, .arguments = {"--idle-timeout=4"}}).value();
  auto stub = cluster->Stub();
  RawStream call(*stub);
  ASSERT_TRUE(call.OpenEpochs(128) && call.AwaitAdmitted() && call.SendAll(0, 100));
  EXPECT_EQ(wire::ReasonOf(call.Finish()), "CLIENT_IDLE");
  ExpectFree(*cluster);
}

TEST(StreamCourse, RowsThatAreCheckedAreCounted) {
  const auto cluster = Cluster::Start({.workers = 2, .arguments = {"--check-rows=8"}}).value();
  const auto report =
      StreamConstantRows(*cluster, StreamSpec(), 1000, {.epoch_tokens = 256, .block_rows = 300});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->epochs(), 4);
  EXPECT_EQ(report->rows_checked(), 32);
}

}  // namespace
}  // namespace hilbert_ring::testing

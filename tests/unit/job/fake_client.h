// A client in this process sends a job's rows, sends them again on request, and collects the
// outputs. It reads when it may:
//
//   FakeClient client(stub, spec, {.reads = 1});   // Admitted, and nothing more
//   client.SendAll();
//   client.Read();                    // from here on
//   EXPECT_TRUE(client.Await().ok());
//   EXPECT_EQ(client.WrongRows(), 0);
#pragma once

#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "server/job/job_client.h"

namespace hilbert_ring::testing {

struct FakeClientOptions {
  std::string job_id = "job";
  int attempt = 0;
  bool can_resend = true;
  int reads = std::numeric_limits<int>::max();  // messages, before Read
  bool input_follows = false;
  bool one_answer = false;
};

class FakeClient {
 public:
  // Opens the job, of float32, with values as wide as keys.
  FakeClient(v1::AttentionService::Stub& stub, const JobSpec& spec, FakeClientOptions options = {});
  ~FakeClient();

  void Send(v1::Tensor tensor, int64_t first_row, int64_t rows);
  void SendAll();  // Q, K and V in two chunks each, or one if `input_follows`; by its own thread
  void CloseWrites();
  void Read();
  void Cancel() { context_.TryCancel(); }

  bool ended() const { return Get(ended_); }
  absl::Status Await();  // the end; returns the call's status

  // After the end:
  v1::Report report() const { return Get(report_); }
  int resends() const { return Get(resends_); }
  int64_t WrongRows() const;     // missing rows of OUT, and rows that differ from V's
  int64_t RepeatedRows() const;  // rows that came twice

  std::optional<int> admitted() const { return Get(admitted_); }  // workers
  int64_t rows() const;                                           // received rows of OUT
  int messages() const { return Get(messages_); }

 private:
  template <typename Value>
  Value Get(const Value& guarded) const {
    const std::lock_guard lock(mutex_);
    return guarded;
  }
  void Receive();
  void Keep(const v1::OutputChunk& chunk);

  const JobSpec spec_;
  const FakeClientOptions options_;
  const std::vector<float> q_, k_, v_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendResponse>> stream_;
  std::mutex writing_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  int reads_;
  bool ended_ = false;
  absl::Status status_;
  v1::Report report_;
  int resends_ = 0;
  int messages_ = 0;
  std::optional<int> admitted_;
  std::vector<float> out_;
  std::vector<int> came_;          // by token: how often
  std::thread sender_, receiver_;  // last: they use all of the above
};

// Opens a job and does nothing more.
class OpeningClient : public server::JobClient {
 public:
  explicit OpeningClient(v1::Open open) : open_(std::move(open)) {}

  server::JobStop& stop() override { return stop_; }
  void ReadAhead() override {}
  absl::StatusOr<bool> Read(server::ClientMessage& message, const server::JobStop&) override {
    if (!open_) return false;
    *message.request.mutable_open() = *std::exchange(open_, std::nullopt);
    return true;
  }
  bool AwaitArrived(int64_t, Input) override { return true; }
  absl::Status Write(const v1::AttendResponse&, const server::JobStop&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<bool> Write(const v1::OutputChunk&, std::string_view, std::shared_ptr<const void>,
                             server::Clock::duration, const server::JobStop&, SendMode) override {
    return true;
  }
  absl::Status AwaitTaken(const server::JobStop&) override { return absl::OkStatus(); }
  void Offer(const v1::AttendResponse&) override {}

 private:
  server::JobStop stop_;
  std::optional<v1::Open> open_;
};

}  // namespace hilbert_ring::testing

// A worker in this process behind a channel. Like a correct worker it copies rows of V to OUT:
// attention of rows that each see themselves alone. A test makes it act differently once, at a
// moment:
//
//   FakeWorker worker("127.0.0.1:1");
//   worker.At(Moment::kRowsDone, Break());      // its connection breaks when it has all rows
//   Hold hold;
//   worker.At(Moment::kReady, hold.action());   // it sends nothing more
//   hold.AwaitHeld();
//   hold.Release();                             // it continues; Release(status) ends it
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/server.h"
#include "hilbert_ring/v1/worker.grpc.pb.h"

namespace hilbert_ring::testing {

enum class Moment {
  kOpened,
  kReady,     // it has sent `ready`
  kFed,       // the first rows, or word of them, have come
  kRowsDone,  // all rows have come
  kHalfOut,   // half of its outputs have left
  kAllOut,    // all outputs have left
  kComputed,  // it has sent `computed`
  kFigures,   // it has sent its figures
};

class FakeWorker : public v1::WorkerService::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::RunResponse, v1::RunRequest>;
  struct Here {
    Stream& stream;
    grpc::ServerContext& context;
    const v1::RunOpen& open;
  };
  // A status ends the run; without one it continues.
  using Action = std::function<std::optional<grpc::Status>(const Here& here)>;

  explicit FakeWorker(std::string address);
  ~FakeWorker() override;

  const std::string& address() const { return address_; }
  std::shared_ptr<grpc::Channel> Channel();

  // Acts once, at the next run that reaches the moment; AtEach at every run.
  void At(Moment moment, Action action);
  void AtEach(Moment moment, Action action);

  // A run opened with its rows is answered in one message; of the moments from kReady to kAllOut it
  // reaches kRowsDone alone.
  void AnswerWhole() { whole_ = true; }
  void TurnMemoryDown() { turns_down_ = true; }
  void set_error(float error) { error_ = error; }
  using RingAction =
      std::function<grpc::Status(grpc::ServerContext& context, const v1::PrepareRingRequest&)>;
  void AtRing(RingAction action);      // once
  void AtEachRing(RingAction action);  // otherwise

  int runs() const { return runs_; }
  int64_t arrived() const { return arrived_; }  // rows of the last `arrived`
  int rings() const { return rings_; }          // calls of ConnectRing
  std::vector<v1::RunOpen> opens() const;

  grpc::Status PrepareRing(grpc::ServerContext* context, const v1::PrepareRingRequest* request,
                           v1::PrepareRingResponse* response) override;
  grpc::Status ConnectRing(grpc::ServerContext* context, const v1::ConnectRingRequest* request,
                           v1::ConnectRingResponse* response) override;
  grpc::Status CloseRing(grpc::ServerContext* context, const v1::CloseRingRequest* request,
                         v1::CloseRingResponse* response) override;
  grpc::Status Run(grpc::ServerContext* context, Stream* stream) override;

 private:
  std::optional<grpc::Status> Reach(Moment moment, const Here& here);

  const std::string address_;
  std::atomic<bool> turns_down_ = false, whole_ = false;
  std::atomic<float> error_ = 0;
  std::atomic<int> runs_ = 0, rings_ = 0;
  std::atomic<int64_t> arrived_ = 0;
  mutable std::mutex mutex_;
  std::map<Moment, Action> actions_, each_;  // guarded by mutex_
  std::vector<v1::RunOpen> opens_;           // guarded by mutex_
  RingAction at_ring_, at_each_ring_;        // guarded by mutex_
  std::unique_ptr<grpc::Server> server_;
};

// A run that waits at a moment until the test releases it or its call is cancelled.
class Hold {
 public:
  FakeWorker::Action action();
  FakeWorker::RingAction ring_action();
  bool AwaitHeld();
  bool held() const;
  void Release(std::optional<grpc::Status> end = std::nullopt);
  bool cancelled() const;

 private:
  struct State {
    std::optional<grpc::Status> Wait(grpc::ServerContext& context);

    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex:
    bool held = false, released = false, cancelled = false;
    std::optional<grpc::Status> end;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // shared with the run
};

FakeWorker::Action Break();
FakeWorker::Action Say(const absl::Status& status, const std::string& reason);
FakeWorker::Action Write(std::function<void(v1::RunResponse&)> fill);

}  // namespace hilbert_ring::testing

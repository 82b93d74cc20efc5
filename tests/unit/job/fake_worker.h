// A worker in this process, behind a channel like that of a real one. It says what a right worker
// says and copies rows of V to OUT, which is attention where each row sees itself alone. A test
// makes it do something else at a moment of its choice, once:
//
//   FakeWorker worker("127.0.0.1:1");
//   worker.At(Moment::kRowsDone, Break());      // its connection breaks when it has all rows
//   Hold hold;
//   worker.At(Moment::kReady, hold.action());   // it says nothing more
//   hold.AwaitHeld();
//   hold.Release();                             // it goes on; or Release(status), it ends so
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

// Of a run at a worker, in their order.
enum class Moment {
  kOpened,    // before it is ready
  kReady,     // it has said so
  kFed,       // the first rows, or word of them, have come
  kRowsDone,  // all have
  kHalfOut,   // half of its outputs have left
  kAllOut,    // all of them have
  kComputed,  // it has said that it has computed
  kFigures,   // it has said all
};

class FakeWorker : public v1::WorkerService::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::RunResponse, v1::RunRequest>;
  struct Here {
    Stream& stream;
    grpc::ServerContext& context;
    const v1::RunOpen& open;
  };
  // A status ends the run; nothing lets it go on.
  using Action = std::function<std::optional<grpc::Status>(const Here& here)>;

  explicit FakeWorker(std::string address);
  ~FakeWorker() override;

  const std::string& address() const { return address_; }
  std::shared_ptr<grpc::Channel> Channel();

  // The next run that comes to this moment does so there; or each run that does.
  void At(Moment moment, Action action);
  void AtEach(Moment moment, Action action);

  // A run whose rows are there when it is opened is answered in one message, without the moments
  // from kReady to kAllOut but kRowsDone.
  void AnswerWhole() { whole_ = true; }
  // Offered memory is turned down.
  void TurnMemoryDown() { turns_down_ = true; }
  // Each number of the outputs is this much greater than it should be.
  void set_error(float error) { error_ = error; }
  // What half of forming the next ring ends with.
  void set_ring_status(grpc::Status status);
  // What the first half of forming each ring ends with.
  void AtEachRing(std::function<grpc::Status(const v1::PrepareRingRequest& request)> action);
  // What it does in the first half of forming the next ring.
  void AtRing(std::function<grpc::Status(grpc::ServerContext& context)> action);

  int runs() const { return runs_; }
  int64_t arrived() const { return arrived_; }  // rows, as it was told last
  int rings() const { return rings_; }          // whose second half it was asked for
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
  std::map<Moment, Action> actions_, each_;                                  // guarded by mutex_
  std::vector<v1::RunOpen> opens_;                                           // guarded by mutex_
  grpc::Status ring_status_;                                                 // guarded by mutex_
  std::function<grpc::Status(grpc::ServerContext&)> at_ring_;                // guarded by mutex_
  std::function<grpc::Status(const v1::PrepareRingRequest&)> at_each_ring_;  // guarded by mutex_
  std::unique_ptr<grpc::Server> server_;
};

// A run that waits for the test at a moment, or until its call is cancelled.
class Hold {
 public:
  FakeWorker::Action action();
  std::function<grpc::Status(grpc::ServerContext&)> ring_action();
  bool AwaitHeld();
  bool held() const;
  void Release(std::optional<grpc::Status> end = std::nullopt);
  bool cancelled() const;  // by the coordinator, while it was held

 private:
  struct State {
    std::optional<grpc::Status> Wait(grpc::ServerContext& context);

    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex:
    bool held = false, released = false, cancelled = false;
    std::optional<grpc::Status> end;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // the run's too
};

// As the transport says that a connection broke.
FakeWorker::Action Break();
// As a worker itself says what is wrong.
FakeWorker::Action Say(const absl::Status& status, const std::string& reason);
// One message more.
FakeWorker::Action Write(std::function<void(v1::RunResponse&)> fill);

}  // namespace hilbert_ring::testing

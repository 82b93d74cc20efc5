// The worker's side of a job, as the messages of its Run stream: a whole RunCall over a stream in
// memory, of a coordinator that may be gone after any of them. The call ends with OK or a typed
// error, takes no more memory than it reserved and gives it back; one that ends well has sent every
// row of its output once.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/worker/ring_transport.h"
#include "server/worker/run_call.h"
#include "tests/fuzz/input_bytes.h"
#include "tests/fuzz/input_spec.h"
#include "tests/fuzz/row_content.h"
#include "tests/support/typed_run_stream.h"
#include "wire/checksum.h"
#include "wire/codec.h"

namespace hilbert_ring::fuzz {
namespace {

using server::SharedMemory;

constexpr int64_t kMemoryLimit = int64_t{1} << 20;

// What all jobs of the worker share.
struct Worker {
  Worker() {
    spdlog::set_level(spdlog::level::off);
    lanes.emplace_back(*device);
  }
  std::unique_ptr<Device> device = *MakeDevice({.threads = 1});
  server::JobMemory memory{kMemoryLimit};
  server::RingTable rings{server::MakeRingTransport({.host = "127.0.0.1"})};
  server::Lanes lanes;
  server::ActiveCalls calls;
  server::KeptThreads threads;
  server::FeedWatch feeds;
};

// Gives out the messages, then ends as a coordinator does that is gone. Keeps what is answered.
class MemoryStream : public testing::TypedRunStream {
 public:
  MemoryStream(std::vector<v1::RunRequest> requests, size_t slice_bytes)
      : TypedRunStream(slice_bytes), requests_(std::move(requests)) {}

  bool Next(v1::RunRequest& request) override {
    if (next_ == requests_.size()) return false;
    request = requests_[next_++];
    return true;
  }
  bool Said(const v1::RunResponse& response, grpc::WriteOptions /*options*/) override {
    const std::lock_guard lock(mutex_);
    responses_.push_back(response);
    return true;
  }

  const std::vector<v1::RunResponse>& responses() const { return responses_; }

 private:
  const std::vector<v1::RunRequest> requests_;
  size_t next_ = 0;
  std::mutex mutex_;
  std::vector<v1::RunResponse> responses_;
};

// The messages of a job for one of its workers.
class Coordinator {
 public:
  explicit Coordinator(InputBytes& input) : input_(input) {
    const uint8_t flags = input.Byte();
    const int workers = 1 + input.Below(3);
    const JobSpec spec = InputSpec(input, 48);
    auto plan = MakePlan(spec, workers);
    if (!plan.ok()) return;
    plan_ = *std::move(plan);
    v1::RunOpen& open = *requests_.emplace_back().mutable_open();
    *open.mutable_spec() = wire::EncodeJobSpec(spec);
    open.set_job_id("job");
    open.set_workers(workers);
    rank_ = input_.Below(workers);
    open.set_rank(rank_);
    open.set_want_lse(input_.Flag());
    open.set_ring_id("ring");
    for (const ShardRange& range : plan_->shards.ranges()) {
      v1::ShardRange& shard = *open.add_shards();
      shard.set_begin(range.begin);
      shard.set_end(range.end);
      shard.set_rank(range.rank);
    }
    if ((flags & 2) != 0) OfferMemory(open);
    SendAll((flags & 16) != 0);
    if ((flags & 1) != 0) requests_.resize(input_.Byte() % (requests_.size() + 1));
  }

  std::vector<v1::RunRequest> TakeRequests() { return std::move(requests_); }

 private:
  void OfferMemory(v1::RunOpen& open) {
    if (plan_->costs.workers[rank_].resident_bytes() >= kMemoryLimit) return;
    auto memory = SharedMemory::Create(ShardLayout(*plan_, rank_).bytes());
    Require(memory.ok(), "memory to share can be had");
    memory_ = *std::move(memory);
    *open.mutable_shared_memory() = memory_->offer();
    open.mutable_shared_memory()->set_used(input_.Flag());
  }

  // The whole order, all rows and the end.
  void SendAll(bool in_parts) {
    const int64_t rows = plan_->shards.Rows(rank_);
    if (rows > 256 || RowBytes(plan_->spec, TensorKind::kQ) > 4096) return;
    const int64_t part = in_parts ? 1 + input_.Below(16) : rows;
    if (plan_->spec.ordering) {
      v1::OrderPart& order = *requests_.emplace_back().mutable_order();
      order.set_tokens(RowContent(0, 0, rows, sizeof(int64_t)));
    }
    for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
      for (int64_t row = 0; row < rows; row += part) {
        v1::ShardRows& message = *requests_.emplace_back().mutable_rows();
        message.set_tensor(tensor);
        message.set_first_local_row(row);
        message.set_rows(std::min(part, rows - row));
        message.set_payload(
            RowContent(tensor, row, message.rows(), wire::TensorRowBytes(plan_->spec, tensor)));
        message.set_crc32c(wire::Crc32c(message.payload()));
      }
    }
    requests_.emplace_back().mutable_done();
  }

  InputBytes& input_;
  int rank_ = 0;
  std::optional<Plan> plan_;
  std::shared_ptr<SharedMemory> memory_;
  std::vector<v1::RunRequest> requests_;
};

void CheckAnswers(const std::vector<v1::RunResponse>& responses) {
  Require(!responses.empty() && responses.front().has_ready(), "a worker is ready first");
  Require(responses.back().has_figures(), "figures are last");
  const int64_t tokens = responses.back().figures().tokens();
  const v1::WorkerReport& figures = responses.back().figures();
  Require(figures.memory_peak_bytes() <= figures.memory_predicted_bytes(),
          "no more memory is taken than predicted");
  int64_t rows = 0, rows_final = 0;
  for (const v1::RunResponse& response : responses) {
    if (response.has_output() && response.output().tensor() == v1::TENSOR_OUT) {
      rows += response.output().rows();
      Require(wire::Crc32c(response.output().payload()) == response.output().crc32c(),
              "outputs have their checksum");
    }
    if (response.has_final()) rows_final = response.final().rows();
  }
  const bool shares = responses.front().ready().shares_memory();
  Require((shares ? rows_final : rows) == tokens, "every row of the output is sent once");
}

}  // namespace

void WorkerRun(Bytes bytes) {
  SilenceProtobuf();
  static Worker worker;
  InputBytes input(bytes);
  Coordinator coordinator(input);
  std::vector<v1::RunRequest> requests = coordinator.TakeRequests();
  // Whatever they were, they are cut into slices in some way.
  MemoryStream stream(std::move(requests), 1 + bytes.size() % 97);
  server::WorkerState state{.lanes = worker.lanes,
                            .memory = worker.memory,
                            .share_memory = true,
                            .feed_timeout = std::chrono::hours(1),
                            .rings = worker.rings,
                            .calls = worker.calls,
                            .threads = worker.threads,
                            .feeds = worker.feeds};
  grpc::ServerContext context;
  const absl::Status status = server::RunCall(state, context, stream).Serve();
  Require(worker.memory.used() == 0, "memory is given back");
  Require(worker.lanes.front().AwaitTurn(std::chrono::milliseconds(0)) != nullptr,
          "the next job has its turn");
  if (status.ok()) return CheckAnswers(stream.responses());
  Require(
      status.code() != absl::StatusCode::kUnknown && status.code() != absl::StatusCode::kInternal,
      "an error is typed");
}

}  // namespace hilbert_ring::fuzz

// The worker's side of a job, as the messages of its Run stream: a whole RunCall over a stream in
// memory. Whatever comes, it ends with OK or a typed error, takes no more memory than it reserved
// and gives it back; one that ends well has sent every row of its output once.
#include <spdlog/spdlog.h>
#include <unistd.h>

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
constexpr int kMaxMessages = 48;

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

// The messages of a job, from a coordinator that mostly knows what it does.
class Coordinator {
 public:
  explicit Coordinator(InputBytes& input) : input_(input) {
    const uint8_t flags = input.Byte();
    const int workers = 1 + input.Below(3);
    const JobSpec spec = InputSpec(input, 48);
    MakeOpen(spec, workers);
    if ((flags & 1) != 0) ChangeOpen();
    if ((flags & 2) != 0) OfferMemory((flags & 4) != 0);
    if ((flags & 8) != 0 && plan_) SendAll((flags & 16) != 0);
    for (int i = 0; i < kMaxMessages && !input.empty(); ++i) requests_.push_back(Message());
  }

  std::vector<v1::RunRequest> TakeRequests() {
    v1::RunRequest open;
    *open.mutable_open() = open_;
    if (opens_) requests_.insert(requests_.begin(), open);
    return std::move(requests_);
  }

 private:
  void MakeOpen(const JobSpec& spec, int workers) {
    *open_.mutable_spec() = wire::EncodeJobSpec(spec);
    open_.set_job_id("job");
    open_.set_workers(workers);
    rank_ = input_.Below(workers);
    open_.set_rank(rank_);
    open_.set_want_lse(input_.Flag());
    open_.set_ring_id("ring");
    auto plan = MakePlan(spec, workers);
    if (!plan.ok()) return;
    plan_ = *std::move(plan);
    for (const ShardRange& range : plan_->shards.ranges()) {
      v1::ShardRange& shard = *open_.add_shards();
      shard.set_begin(range.begin);
      shard.set_end(range.end);
      shard.set_rank(range.rank);
    }
  }

  void ChangeOpen() {
    switch (input_.Below(8)) {
      case 0:
        open_.set_rank(static_cast<int>(input_.Integer()));
        break;
      case 1:
        open_.set_workers(static_cast<int>(input_.Integer()));
        break;
      case 2:
        open_.set_generation(input_.Byte());
        break;
      case 3:
        open_.set_compute_timeout_ms(input_.Integer());
        break;
      case 4:
        opens_ = false;
        break;
      case 5:
        open_.ParseFromString(input_.Text(input_.Byte()));
        break;
      default:
        open_.clear_shards();
        for (int i = input_.Below(6); i > 0; --i) {
          v1::ShardRange& shard = *open_.add_shards();
          shard.set_begin(input_.Integer());
          shard.set_end(input_.Integer());
          shard.set_rank(input_.Below(4));
        }
    }
  }

  void OfferMemory(bool honest) {
    v1::SharedMemory& offer = *open_.mutable_shared_memory();
    if (honest && plan_ && plan_->costs.workers[rank_].resident_bytes() < kMemoryLimit) {
      auto memory = SharedMemory::Create(ShardLayout(*plan_, rank_).bytes());
      Require(memory.ok(), "memory to share can be had");
      memory_ = *std::move(memory);
      offer = memory_->offer();
      offer.set_used(input_.Flag());
      return;
    }
    offer.set_process(input_.Flag() ? getpid() : -1);
    offer.set_descriptor_number(memory_ != nullptr ? memory_->offer().descriptor_number() : -1);
    offer.set_bytes(input_.Integer());
    offer.set_mark(input_.Byte());
  }

  // The whole order, all rows and the end.
  void SendAll(bool in_parts) {
    const int64_t rows = plan_->shards.Rows(rank_);
    if (rows > 256 || RowBytes(plan_->spec, TensorKind::kQ) > 4096) return;
    const int64_t part = in_parts ? 1 + input_.Below(16) : rows;
    if (plan_->spec.ordering) requests_.push_back(Order(0, rows));
    for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
      for (int64_t row = 0; row < rows; row += part) {
        requests_.push_back(Rows(tensor, row, std::min(part, rows - row)));
      }
    }
    requests_.emplace_back().mutable_done();
  }

  static v1::RunRequest Order(int64_t first, int64_t count) {
    v1::RunRequest request;
    request.mutable_order()->set_first_local_row(first);
    request.mutable_order()->set_tokens(RowContent(0, first, count, sizeof(int64_t)));
    return request;
  }

  v1::RunRequest Rows(v1::Tensor tensor, int64_t first, int64_t rows) const {
    v1::RunRequest request;
    v1::ShardRows& message = *request.mutable_rows();
    message.set_tensor(tensor);
    message.set_first_local_row(first);
    message.set_rows(rows);
    const int64_t row_bytes = plan_ ? wire::TensorRowBytes(plan_->spec, tensor) : 32;
    message.set_payload(
        RowContent(tensor, first, std::clamp<int64_t>(rows, 0, 64), std::min(row_bytes, kMaxRow)));
    message.set_crc32c(wire::Crc32c(message.payload()));
    return request;
  }

  v1::RunRequest Message() {
    v1::RunRequest request;
    switch (const uint8_t kind = input_.Byte(); kind % 9) {
      case 0:
        return Order(input_.Integer(), input_.Byte());
      case 1:
      case 2:
        return Rows(static_cast<v1::Tensor>(input_.Below(8)), input_.Integer(), input_.Below(32));
      case 3: {  // listed
        const int rows = input_.Below(16);
        request = Rows(static_cast<v1::Tensor>(2 + input_.Below(3)), 0, rows);
        for (int i = 0; i < rows; ++i) request.mutable_rows()->add_local_rows(input_.Integer());
        return request;
      }
      case 4:
        request.mutable_arrived()->set_rows(input_.Integer());
        return request;
      case 5:
        request.mutable_done();
        return request;
      case 6:
        *request.mutable_open() = open_;
        return request;
      case 7:  // wrong count or checksum
        request = Rows(v1::TENSOR_Q, 0, 1 + input_.Below(4));
        request.mutable_rows()->set_rows(input_.Integer());
        request.mutable_rows()->set_crc32c(request.rows().crc32c() ^ input_.Byte());
        return request;
      default:
        request.ParsePartialFromString(input_.Text(input_.Byte()));
        return request;
    }
  }

  static constexpr int64_t kMaxRow = 4096;

  InputBytes& input_;
  v1::RunOpen open_;
  int rank_ = 0;  // that the job is made for, whatever the open says
  bool opens_ = true;
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

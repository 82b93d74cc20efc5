// Ring and shard of a run, and the way of its rows.
#include <spdlog/spdlog.h>

#include <cstring>
#include <utility>

#include "engine/base/return_if_error.h"
#include "server/worker/message_rows.h"
#include "server/worker/run_call.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

class SharedWay final : public ShardWay {
 public:
  absl::StatusOr<int64_t> Take(const v1::RunRequest& message,
                               const wire::Payload& /*payload*/) override {
    if (!message.has_arrived()) return absl::InvalidArgumentError("expected RowsArrived");
    return message.arrived().rows();
  }
  absl::Status Put(int64_t rows_final, RunReplies& replies, grpc::WriteOptions options) override {
    if (rows_final == put_) return absl::OkStatus();
    put_ = rows_final;
    v1::RunResponse response;
    response.mutable_final()->set_rows(rows_final);
    return replies.Write(response, options);
  }

 private:
  int64_t put_ = 0;  // local rows
};

// Null unless the coordinator offers memory that this process can map.
std::shared_ptr<SharedMemory> OpenShared(const v1::RunOpen& open, const ShardLayout& layout) {
  if (!open.has_shared_memory() || open.shared_memory().bytes() < layout.bytes()) return nullptr;
  auto shared = SharedMemory::Open(open.shared_memory());
  if (shared.ok()) return *std::move(shared);
  spdlog::info("job {}, rank {}: rows come by the stream: {}", open.job_id(), open.rank(),
               std::string(shared.status().message()));
  return nullptr;
}

}  // namespace

void RunShard::ClearOutputs() {
  if (!used) return;
  const int64_t bytes = store->rows(TensorKind::kOut) * store->layout().RowBytes(TensorKind::kOut);
  std::memset(store->Row(TensorKind::kOut, 0), 0, static_cast<size_t>(bytes));
}

absl::Status RunCall::MakeShard() {
  RunShard& shard = shard_.emplace();
  if (work_->plan().costs.steps > 0) {
    ASSIGN_OR_RETURN(auto ring, state_.rings.Take(open_.ring_id(), open_.generation()));
    shard.ring.emplace(std::move(ring));
    shard.transport = shard.ring->communicator()->name();
  }
  const ShardLayout layout(work_->plan(), work_->rank());
  if (state_.share_memory) shard.shared = OpenShared(open_, layout);
  if (shard.shared != nullptr) {
    shard.store = ShardStore::Over(HostShard(shard.shared->data(), layout));
    shard.used = open_.shared_memory().used();
  } else {
    auto store = ShardStore::Make(lane_->device(), work_->plan(), work_->rank());
    if (!store.ok()) return wire::WithReason(store.status(), wire::reason::kWorkerMemory);
    shard.store = *std::move(store);
  }
  if (!files_.inputs.empty()) {
    shard.way = std::make_unique<FileWay>(files_, *work_, *shard.store, course_);
  } else if (shard.shared != nullptr) {
    shard.in_place = true;
    shard.way = std::make_unique<SharedWay>();
  } else {
    shard.way = std::make_unique<MessageWay>(work_->shape(), work_->plan(), work_->rank(),
                                             *shard.store, open_);
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server

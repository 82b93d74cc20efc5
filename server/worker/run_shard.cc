// Ring and shard of a run, and the way of its rows.
#include <spdlog/spdlog.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/worker/message_rows.h"
#include "server/worker/run_call.h"
#include "server/worker/shared_rows.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kMostReasonBytes = 128;

// FAILED_PRECONDITION unless the coordinator offers memory that this process can map.
absl::StatusOr<std::shared_ptr<MappedShard>> OpenShared(const v1::RunOpen& open,
                                                        const ShardLayout& layout,
                                                        WorkerState& state, Device& device) {
  if (!state.share_memory) return absl::FailedPreconditionError("--share-memory is false");
  if (!open.has_shared_memory()) {
    return absl::FailedPreconditionError("the coordinator offers no memory");
  }
  if (open.shared_memory().bytes() < layout.bytes()) {
    return absl::FailedPreconditionError(absl::StrCat("the coordinator offers ",
                                                      open.shared_memory().bytes(),
                                                      " bytes, must be ", layout.bytes()));
  }
  return MapShard(open.shared_memory(), device, state.pinned);
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
  const bool in_host_memory = lane_->device().host_memory();
  if (in_host_memory || files_.inputs.empty()) {
    auto shared = OpenShared(open_, layout, state_, lane_->device());
    if (shared.ok()) {
      shard.shared = *std::move(shared);
    } else {
      report_.set_rows_from(
          absl::StrCat("messages: ", shared.status().message()).substr(0, kMostReasonBytes));
      if (open_.has_shared_memory())
        spdlog::info("job {}, rank {}: rows come in {}", open_.job_id(), open_.rank(),
                     report_.rows_from());
    }
  }
  // Frees kept memory that does not fit, in any case: it would stand beside this job's.
  std::shared_ptr<Buffer> kept;
  if (in_host_memory && layout.bytes() >= RunShard::kLeastKept) {
    kept = state_.kept.Take(layout.bytes(), layout.bytes());
  }
  if (shard.shared != nullptr && in_host_memory) {
    shard.store = ShardStore::Over(HostShard(shard.shared->memory->data(), layout));
    shard.used = open_.shared_memory().used();
  } else if (in_host_memory) {
    const int64_t bytes = layout.bytes();
    shard.own = std::move(kept);
    shard.used = shard.own != nullptr;
    if (!shard.used) {
      auto fresh = lane_->device().Allocate(bytes);
      if (!fresh.ok()) return wire::WithReason(fresh.status(), wire::reason::kWorkerMemory);
      shard.own = *std::move(fresh);
    }
    shard.store = ShardStore::Over(HostShard(shard.own->data(), layout));
  } else {
    auto store = ShardStore::Make(lane_->device(), work_->plan(), work_->rank());
    if (!store.ok()) return wire::WithReason(store.status(), wire::reason::kWorkerMemory);
    shard.store = *std::move(store);
  }
  if (!files_.inputs.empty()) {
    shard.rows = RowsWay::kFiles;
    report_.set_rows_from("files");
    shard.way = std::make_unique<FileWay>(files_, *work_, *shard.store, course_);
  } else if (shard.shared == nullptr) {
    shard.way = std::make_unique<MessageWay>(work_->shape(), work_->plan(), work_->rank(),
                                             *shard.store, open_);
  } else if (in_host_memory) {
    shard.rows = RowsWay::kInPlace;
    report_.set_rows_from("shared memory");
    shard.way = std::make_unique<InPlaceWay>();
  } else {
    shard.rows = RowsWay::kCopied;
    report_.set_rows_from("shared memory, copied to the device");
    shard.way =
        std::make_unique<DeviceWay>(HostShard(shard.shared->memory->data(), layout), *shard.store);
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server

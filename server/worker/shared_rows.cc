#include "server/worker/shared_rows.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/return_if_error.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::milliseconds kKeep{500};

}  // namespace

MappedShards::MappedShards() : thread_(kKeep / 2, [this](const std::stop_token&) { FreeOld(); }) {}

absl::StatusOr<std::shared_ptr<MappedShard>> MappedShards::Open(const v1::SharedMemory& offer,
                                                                Device& device) {
  if (device.host_memory() || !offer.used()) {
    ASSIGN_OR_RETURN(auto memory, SharedMemory::Open(offer));
    return std::make_shared<MappedShard>(std::move(memory), nullptr);
  }
  {
    const MutexLock lock(mutex_);
    for (Kept& kept : kept_) {
      if (kept.process != offer.process() || kept.mark != offer.mark()) continue;
      kept.until = Clock::now() + kKeep;
      return kept.shard;
    }
  }
  ASSIGN_OR_RETURN(auto memory, SharedMemory::Open(offer));
  auto pin = device.Pin(memory->data(), memory->bytes());
  if (!pin.ok()) {
    spdlog::info("shared memory of {} bytes is copied through pinned pieces: {}", memory->bytes(),
                 std::string(pin.status().message()));
    return std::make_shared<MappedShard>(std::move(memory), nullptr);
  }
  auto shard = std::make_shared<MappedShard>(std::move(memory), *std::move(pin));
  const MutexLock lock(mutex_);
  kept_.push_back({offer.process(), offer.mark(), shard, Clock::now() + kKeep});
  return shard;
}

void MappedShards::FreeOld() {
  std::list<Kept> freed;  // freed without the lock
  const MutexLock lock(mutex_);
  const Clock::time_point now = Clock::now();
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    const auto next = std::next(kept);
    if (kept->shard.use_count() > 1) {
      kept->until = now + kKeep;
    } else if (kept->until <= now) {
      freed.splice(freed.end(), kept_, kept);
    }
    kept = next;
  }
}

absl::StatusOr<int64_t> InPlaceWay::Take(const v1::RunRequest& message,
                                         const wire::Payload& /*payload*/) {
  if (!message.has_arrived()) return absl::InvalidArgumentError("expected RowsArrived");
  return message.arrived().rows();
}

absl::Status InPlaceWay::Put(int64_t rows_final, RunReplies& replies, grpc::WriteOptions options) {
  if (rows_final == put_) return absl::OkStatus();
  put_ = rows_final;
  v1::RunResponse response;
  response.mutable_final()->set_rows(rows_final);
  return replies.Write(response, options);
}

absl::StatusOr<int64_t> DeviceWay::Take(const v1::RunRequest& message,
                                        const wire::Payload& payload) {
  ASSIGN_OR_RETURN(const int64_t rows, messages_.Take(message, payload));
  RETURN_IF_ERROR(CopyIn(std::min(rows, store_.rows())));
  return rows;
}

// The coordinator writes the order before rows.
absl::Status DeviceWay::CopyOrder() {
  if (std::exchange(ordered_, true)) return absl::OkStatus();
  const int64_t coordinates = shard_.rows(TensorKind::kBiasCoords);
  if (coordinates > 0) {
    RETURN_IF_ERROR(store_.Write(TensorKind::kBiasCoords, 0, coordinates,
                                 shard_.Row(TensorKind::kBiasCoords, 0)));
  }
  return store_.WriteTokens(0, std::ssize(shard_.tokens()), shard_.tokens().data());
}

absl::Status DeviceWay::CopyIn(int64_t rows) {
  if (rows <= in_) return absl::OkStatus();
  RETURN_IF_ERROR(CopyOrder());
  for (const TensorKind tensor : kInputKinds) {
    const int64_t end = std::min(rows, shard_.rows(tensor));
    if (end <= in_) continue;
    RETURN_IF_ERROR(store_.Write(tensor, in_, end - in_, shard_.Row(tensor, in_)));
  }
  in_ = rows;
  return absl::OkStatus();
}

absl::Status DeviceWay::Put(int64_t rows_final, RunReplies& replies, grpc::WriteOptions options) {
  for (const TensorKind tensor : kOutputKinds) {
    const int64_t end = std::min(rows_final, shard_.rows(tensor));
    if (end <= out_) continue;
    RETURN_IF_ERROR(store_.Read(tensor, out_, end - out_, shard_.Row(tensor, out_)));
  }
  out_ = rows_final;
  return messages_.Put(rows_final, replies, options);
}

}  // namespace hilbert_ring::server

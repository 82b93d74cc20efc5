#include "server/worker/shared_rows.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/return_if_error.h"
#include "engine/spec/tensor.h"

namespace hilbert_ring::server {
absl::StatusOr<std::shared_ptr<MappedShard>> MapShard(const v1::SharedMemory& offer, Device& device,
                                                      PinnedShards& kept) {
  const bool pins = !device.host_memory() && offer.used();
  if (pins) {
    auto known = kept.Take([&offer](const MappedShard& shard) {
      return shard.offer.process() == offer.process() && shard.offer.mark() == offer.mark();
    });
    if (known != nullptr) return known;
  }
  auto shard = std::make_shared<MappedShard>();
  ASSIGN_OR_RETURN(shard->memory, SharedMemory::Open(offer));
  shard->offer = offer;
  if (!pins) return shard;
  auto pin = device.Pin(shard->memory->data(), shard->memory->bytes());
  if (pin.ok()) {
    shard->pin = *std::move(pin);
  } else {
    spdlog::info("shared memory of {} bytes is copied through pinned pieces: {}", offer.bytes(),
                 std::string(pin.status().message()));
  }
  return shard;
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

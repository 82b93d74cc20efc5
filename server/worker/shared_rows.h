// Rows in memory that the coordinator shares (server/shard/shared_memory.h): computed where they
// lie, or copied to a device with memory of its own.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/plan/shard_layout.h"
#include "engine/run/shard_store.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/process/kept_memory.h"
#include "server/shard/shared_memory.h"
#include "server/worker/shard_ways.h"

namespace hilbert_ring::server {

// Memory of the coordinator, mapped, and pinned if a device copies from it.
struct MappedShard {
  std::shared_ptr<SharedMemory> memory;
  std::unique_ptr<HostPin> pin;  // released before the memory; null: not pinned
  v1::SharedMemory offer;
};

using PinnedShards = KeptMemory<MappedShard>;

// FAILED_PRECONDITION if this process cannot reach the memory. device: pins memory that an earlier
// job used; a first job's pages would all have to be taken before its rows come. A job puts its
// pinned shard into `kept`.
absl::StatusOr<std::shared_ptr<MappedShard>> MapShard(const v1::SharedMemory& offer, Device& device,
                                                      PinnedShards& kept);

// The coordinator writes rows to their places, and reads outputs there.
class InPlaceWay final : public ShardWay {
 public:
  absl::StatusOr<int64_t> Take(const v1::RunRequest& message,
                               const wire::Payload& payload) override;
  absl::Status Put(int64_t rows_final, RunReplies& replies, grpc::WriteOptions options) override;

 private:
  int64_t put_ = 0;  // local rows
};

// Copies rows to the store as they come, and final outputs back.
class DeviceWay final : public ShardWay {
 public:
  // They have the same layout and outlive this.
  DeviceWay(const HostShard& shard, ShardStore& store) : shard_(shard), store_(store) {}

  absl::StatusOr<int64_t> Take(const v1::RunRequest& message,
                               const wire::Payload& payload) override;
  absl::Status FinishInput() override { return CopyIn(store_.rows()); }
  absl::Status Put(int64_t rows_final, RunReplies& replies, grpc::WriteOptions options) override;

 private:
  absl::Status CopyIn(int64_t rows);
  absl::Status CopyOrder();

  const HostShard shard_;
  ShardStore& store_;
  InPlaceWay messages_;
  bool ordered_ = false;      // the order has been copied
  int64_t in_ = 0, out_ = 0;  // local rows that have been copied
};

}  // namespace hilbert_ring::server

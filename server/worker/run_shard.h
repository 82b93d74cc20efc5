// Ring, shard and the ways of rows in and out, which a run holds while it has its lane.
// MakeRunShard alone chooses the ways.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/run/shard_store.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/shard/shared_memory.h"
#include "server/worker/file_rows.h"
#include "server/worker/ring_table.h"
#include "server/worker/run_course.h"
#include "server/worker/run_work.h"
#include "server/worker/shard_ways.h"
#include "server/worker/worker_state.h"

namespace hilbert_ring::server {

struct RunShard {
  std::optional<RingTable::Lease> ring;  // empty: no exchange
  std::string transport = "none";        // of the ring
  std::shared_ptr<SharedMemory> shared;  // null: not shared
  bool used = false;                     // may contain outputs of an earlier run
  bool in_place = false;                 // the coordinator writes rows to their places, and reads
  std::unique_ptr<ShardStore> store;
  std::unique_ptr<ShardInput> input;
  std::unique_ptr<ShardOutput> output;

  void ClearOutputs();  // before compute: removes outputs of an earlier run
};

// References outlive it. RESOURCE_EXHAUSTED (WORKER_MEMORY), FAILED_PRECONDITION (RING_LEASED).
absl::StatusOr<RunShard> MakeRunShard(WorkerState& state, const v1::RunOpen& open,
                                      const RunWork& work, Device& device, const RunFiles& files,
                                      RunCourse& course);

}  // namespace hilbert_ring::server

#include "server/job/open_request.h"

#include "wire/codec.h"

namespace hilbert_ring::server {

v1::RunRequest OpenRequest(const JobRunOptions& options, int rank, const WorkerShard& shard,
                           uint64_t run, const Delivered& delivered) {
  v1::RunRequest request;
  v1::RunOpen& open = *request.mutable_open();
  open.set_job_id(options.job_id);
  options.work->Describe(open);
  for (const ShardRange& range : options.plan->shards.ranges()) {
    v1::ShardRange& part = *open.add_shards();
    part.set_begin(range.begin);
    part.set_end(range.end);
    part.set_rank(range.rank);
  }
  open.set_rank(rank);
  open.set_workers(options.plan->shards.workers());
  open.set_ring_id(options.ring_id);
  open.set_generation(options.generation);
  open.set_want_lse(options.want_lse);
  open.set_lane(options.lane);
  open.set_traceparent(options.traceparent);
  open.set_want_trace(options.want_trace);
  open.set_run(run);
  open.set_compute_timeout_ms(options.compute_timeout.count());
  options.rows->AddTo(open);
  if (shard.offered()) *open.mutable_shared_memory() = shard.memory()->offer();
  // Also for an offered shard, which the worker may turn down.
  for (const TensorKind tensor : kOutputKinds) {
    if (delivered.of(tensor).count() == 0) continue;
    v1::DeliveredRows& rows = *open.add_delivered();
    rows.set_tensor(wire::TensorOf(tensor));
    for (const auto& [begin, end] : delivered.of(tensor).ranges()) {
      v1::SlotRange& range = *rows.add_slots();
      range.set_begin(begin);
      range.set_end(end);
    }
  }
  return request;
}

}  // namespace hilbert_ring::server

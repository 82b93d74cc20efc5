#include "server/worker/run_work.h"

#include <utility>
#include <vector>

#include "engine/base/return_if_error.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

class AttentionRun : public RunWork {
 public:
  AttentionRun(JobShape shape, Plan plan, int rank)
      : RunWork(std::move(shape), std::move(plan), rank) {}

  absl::StatusOr<Figures> Execute(ShardStore& store, Device& device, Communicator* communicator,
                                  int64_t first_step, const WorkControl& control) override {
    return hilbert_ring::Execute(plan(), rank(), store, device, communicator, first_step,
                                 control.execute);
  }
};

}  // namespace

Shards ShardsOf(const v1::RunOpen& open) {
  std::vector<ShardRange> ranges;
  for (const v1::ShardRange& shard : open.shards()) {
    ranges.push_back({.begin = shard.begin(), .end = shard.end(), .rank = shard.rank()});
  }
  return Shards::Make(open.workers(), ranges);
}

absl::StatusOr<std::unique_ptr<RunWork>> MakeAttentionRun(const v1::RunOpen& open) {
  ASSIGN_OR_RETURN(JobSpec spec, wire::DecodeJobSpec(open.spec()));
  ASSIGN_OR_RETURN(Plan plan, MakePlan(std::move(spec), ShardsOf(open), open.rank()));
  JobShape shape(plan.spec);
  return std::make_unique<AttentionRun>(std::move(shape), std::move(plan), open.rank());
}

}  // namespace hilbert_ring::server

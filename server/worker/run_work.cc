#include "server/worker/run_work.h"

#include <utility>
#include <vector>

#include "engine/base/return_if_error.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

class AttentionRun : public RunWork {
 public:
  AttentionRun(Plan plan, int rank) : RunWork(plan.spec, std::move(plan), rank) {}

  absl::StatusOr<Figures> Execute(ShardStore& store, Device& device, Communicator* communicator,
                                  int64_t first_step, const WorkControl& control) override {
    return hilbert_ring::Execute(plan(), rank(), store, device, communicator, first_step,
                                 control.execute);
  }
};

}  // namespace

absl::StatusOr<Shards> ShardsOf(const v1::RunOpen& open, int64_t tokens) {
  std::vector<ShardRange> ranges;
  for (const v1::ShardRange& shard : open.shards()) {
    ranges.push_back({.begin = shard.begin(), .end = shard.end(), .rank = shard.rank()});
  }
  return Shards::Make(tokens, open.workers(), std::move(ranges));
}

absl::StatusOr<std::unique_ptr<RunWork>> MakeAttentionRun(const v1::RunOpen& open) {
  ASSIGN_OR_RETURN(const JobSpec spec, wire::DecodeJobSpec(open.spec()));
  RETURN_IF_ERROR(Validate(spec));
  ASSIGN_OR_RETURN(Shards shards, ShardsOf(open, spec.tokens));
  ASSIGN_OR_RETURN(Plan plan, MakePlan(spec, std::move(shards)));
  return std::make_unique<AttentionRun>(std::move(plan), open.rank());
}

}  // namespace hilbert_ring::server

// What all jobs of a coordinator share.
#pragma once

#include "engine/order/order_cache.h"
#include "server/coordinator/job_sizes.h"
#include "server/coordinator/job_table.h"
#include "server/coordinator/membership.h"
#include "server/coordinator/open_runs.h"
#include "server/coordinator/plan_gate.h"
#include "server/coordinator/rings.h"
#include "server/coordinator/scheduler.h"
#include "server/coordinator/suspects.h"
#include "server/process/metrics.h"
#include "server/process/settings.h"
#include "server/shard/job_memory.h"
#include "server/shard/shared_memory_pool.h"

namespace hilbert_ring::server {

struct JobServices {
  const CoordinatorSettings& settings;
  Membership& membership;
  Scheduler& scheduler;
  ComputeRate& rate;
  JobTable& jobs;
  Rings& rings;
  OpenRuns& runs;
  OrderCache& orders;
  SharedMemoryPool& shards;
  JobMemory& copies;        // of rows that workers elsewhere have
  JobMemory& order_memory;  // of coordinates, and the orders made of them
  PlanGate& plans;          // of jobs
  Metrics& metrics;
  Suspects& suspects;  // workers that sent wrong rows
};

}  // namespace hilbert_ring::server

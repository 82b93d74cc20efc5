// Services that all jobs of a coordinator share.
#pragma once

#include "engine/order/order_cache.h"
#include "server/access/quotas.h"
#include "server/cluster/membership.h"
#include "server/cluster/open_runs.h"
#include "server/cluster/rings.h"
#include "server/cluster/suspects.h"
#include "server/files/data_root.h"
#include "server/job/job_table.h"
#include "server/metrics/metrics.h"
#include "server/models/model_catalog.h"
#include "server/process/kept_threads.h"
#include "server/process/settings.h"
#include "server/process/time_source.h"
#include "server/rows/shared_memory_pool.h"
#include "server/schedule/job_sizes.h"
#include "server/schedule/plan_gate.h"
#include "server/schedule/scheduler.h"
#include "server/shard/job_memory.h"

namespace hilbert_ring::server {

struct JobCluster {
  Membership& membership;
  Scheduler& scheduler;
  ComputeRate& rate;
  Rings& rings;
  OpenRuns& runs;
  Suspects& suspects;  // workers that sent wrong rows
};

struct JobStores {
  OrderCache& orders;
  ModelCatalog& models;
  SharedMemoryPool& shards;
  KeptThreads& threads;
  JobMemory& copies;          // of rows of workers on other hosts
  JobMemory& order_memory;    // of coordinates and their orders
  DataRoot* const data_root;  // null: jobs on files are refused
};

struct JobLimits {
  const CoordinatorSettings& settings;
  Quotas& quotas;
  PlanGate& plans;
};

struct JobObservers {
  JobTable& jobs;
  Metrics& metrics;
  const TimeSource& time = SystemTime();
};

struct JobServices {
  JobCluster cluster;
  JobStores memory;
  JobLimits limits;
  JobObservers observers;
};

}  // namespace hilbert_ring::server

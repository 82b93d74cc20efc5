// What all jobs of a coordinator share.
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

struct JobServices {
  const CoordinatorSettings& settings;
  Membership& membership;
  Scheduler& scheduler;
  ComputeRate& rate;
  JobTable& jobs;
  Quotas& quotas;
  Rings& rings;
  OpenRuns& runs;
  OrderCache& orders;
  ModelCatalog& models;
  SharedMemoryPool& shards;
  KeptThreads& threads;
  JobMemory& copies;        // of rows that workers elsewhere have
  JobMemory& order_memory;  // of coordinates, and the orders made of them
  PlanGate& plans;          // of jobs
  Metrics& metrics;
  Suspects& suspects;         // workers that sent wrong rows
  DataRoot* const data_root;  // null: the service takes no files
  const TimeSource& time = SystemTime();

  // The same, for jobs that are in another table, and counted elsewhere.
  struct Own {
    const CoordinatorSettings& settings;
    JobTable& jobs;
    Quotas& quotas;
    JobMemory& copies;
    Metrics& metrics;
  };
  JobServices With(const Own& own) const {
    return {.settings = own.settings,
            .membership = membership,
            .scheduler = scheduler,
            .rate = rate,
            .jobs = own.jobs,
            .quotas = own.quotas,
            .rings = rings,
            .runs = runs,
            .orders = orders,
            .models = models,
            .shards = shards,
            .threads = threads,
            .copies = own.copies,
            .order_memory = order_memory,
            .plans = plans,
            .metrics = own.metrics,
            .suspects = suspects,
            .data_root = data_root,
            .time = time};
  }
};

}  // namespace hilbert_ring::server

// The figures of a run: for the coordinator, and for this worker's metrics.
#pragma once

#include <cstdint>
#include <string>

#include "engine/device/device.h"
#include "engine/run/executor.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/metrics/worker_metrics.h"
#include "server/worker/run_shard.h"

namespace hilbert_ring::server {

// resident_bytes: that the process took for the run.
v1::WorkerReport ReportOf(const WorkerCost& cost, const Figures& figures, const DeviceInfo& device,
                          const RunShard& shard, int64_t resident_bytes);

RunFigures FiguresOf(const v1::WorkerReport& report, double receive_seconds);

}  // namespace hilbert_ring::server

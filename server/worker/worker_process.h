// A worker: device, gRPC server and registration, until a stop signal comes.
#pragma once

#include "absl/status/status.h"
#include "server/process/settings.h"
#include "server/worker/worker_device.h"

namespace hilbert_ring::server {

// Stop signals must be blocked in all threads. Runs until SIGTERM or SIGINT, then drains. The
// coordinator hears the result of the self-test (self_test.h). Errors: an address that nobody else
// reaches, or that cannot be listened on.
absl::Status RunWorker(const WorkerSettings& settings, const WorkerDevices& devices,
                       const absl::Status& self_test);

}  // namespace hilbert_ring::server

// What calls get that the services refuse at once.
#pragma once

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "server/metrics/metrics.h"
#include "server/schedule/plan_gate.h"

namespace hilbert_ring::server {

// Counted by its reason.
grpc::Status Refuse(Metrics& metrics, const absl::Status& why);

// TOO_MANY_CALLS, with when to try again: when about half of the longest may be done.
grpc::Status RefusePlan(Metrics& metrics, const PlanGate& plans, grpc::ServerContext& context);

}  // namespace hilbert_ring::server

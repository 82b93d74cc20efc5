// Answers to calls that a service refuses at once.
#pragma once

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "server/metrics/metrics.h"
#include "server/schedule/plan_gate.h"

namespace hilbert_ring::server {

grpc::Status Refuse(Metrics& metrics, const absl::Status& why);

// TOO_MANY_CALLS, with a retry-after of about half of the longest plan.
grpc::Status RefusePlan(Metrics& metrics, const PlanGate& plans, grpc::ServerContext& context);

}  // namespace hilbert_ring::server

#include "server/coordinator/refusals.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/coordinator/job_calls.h"
#include "wire/status.h"
#include "wire/transport.h"

namespace hilbert_ring::server {
namespace {

constexpr double kPlanSeconds = 2;  // of the longest

}  // namespace

grpc::Status Refuse(Metrics& metrics, const absl::Status& why) {
  metrics.CountRefused(wire::ReasonOf(why));
  return wire::ToGrpc(why);
}

grpc::Status RefusePlan(Metrics& metrics, const PlanGate& plans, grpc::ServerContext& context) {
  const absl::Status why = wire::ErrorOf(
      wire::reason::kTooManyCalls, absl::StrCat(plans.most(), " plans are being made, the limit"));
  context.AddTrailingMetadata(wire::kRetryAfterKey,
                              std::to_string(RetryAfter(kPlanSeconds).count()));
  return Refuse(metrics, why);
}

}  // namespace hilbert_ring::server

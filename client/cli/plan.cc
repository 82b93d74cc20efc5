#include "engine/plan/plan.h"

#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/print_plan.h"
#include "client/cpp/job_files.h"
#include "client/cpp/service.h"
#include "wire/codec.h"

namespace hilbert_ring::cli {

int RunPlan(const GlobalOptions& global, const PlanCommand& command) {
  const absl::StatusOr<client::JobSource> source = SourceOf(global, command.job);
  if (!source.ok()) return BadInput(global, source.status());
  const absl::StatusOr<client::Job> job =
      client::ReadJob(*source, client::CoordinatesUse::kOptional);
  if (!job.ok()) return BadInput(global, job.status());
  v1::PlanResponse response;
  if (command.local) {
    const absl::StatusOr<Plan> plan =
        MakePlan(job->spec, command.workers == 0 ? 1 : command.workers);
    if (!plan.ok()) return BadInput(global, plan.status());
    response = wire::EncodePlan(*plan);
  } else {
    RetryTeller retries(global);
    const client::PlanOptions options{
        .retry = [&retries](const client::CallRetry& retry) { retries.Tell(retry); }};
    absl::StatusOr<v1::PlanResponse> answer = client::RequestPlan(
        client::Connect(global.server, global.access), job->spec, command.workers, options);
    if (!answer.ok()) return ServiceFailed(global, answer.status());
    response = *std::move(answer);
  }
  return PrintPlan(global, job->spec.tokens, response);
}

}  // namespace hilbert_ring::cli

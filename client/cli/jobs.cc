#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/json_message.h"
#include "client/cli/table.h"
#include "client/cpp/service.h"

namespace hilbert_ring::cli {
namespace {

bool HasFraction(v1::Job::State state) {
  return state == v1::Job::STATE_RECEIVING || state == v1::Job::STATE_COMPUTING ||
         state == v1::Job::STATE_SENDING;
}

// Tokens of a stream are those of finished epochs.
std::string TokensOf(const v1::Job& job) {
  const std::string tokens = FormatCount(job.tokens());
  return job.stream() ? absl::StrCat(tokens, " in ", FormatCount(job.epochs()), " epochs") : tokens;
}

void PrintJobs(const v1::ListJobsResponse& jobs) {
  if (jobs.jobs().empty()) {
    std::printf("no jobs\n");
    return;
  }
  // Callers are empty if the service does not distinguish them.
  const bool callers = std::any_of(jobs.jobs().begin(), jobs.jobs().end(),
                                   [](const v1::Job& job) { return !job.caller().empty(); });
  std::vector<std::vector<std::string>> rows = {
      {"job", "attempt", "state", "done", "tokens", "workers", "opened"}};
  if (callers) rows.front().push_back("caller");
  for (const v1::Job& job : jobs.jobs()) {
    rows.push_back({job.job_id(), absl::StrCat(job.attempt()),
                    PlainName(v1::Job::State_Name(job.state()), "unknown"),
                    HasFraction(job.state()) ? FormatPercent(job.fraction(), 1) : "-",
                    TokensOf(job), job.workers() == 0 ? "-" : absl::StrCat(job.workers()),
                    absl::StrCat(FormatSeconds(job.seconds()), " ago")});
    if (callers) rows.back().push_back(job.caller());
  }
  std::printf("%s", FormatTable(rows).c_str());
}

}  // namespace

int RunJobs(const GlobalOptions& global) {
  return PrintAnswer(global, client::RequestJobs(client::Connect(global.server, global.access)),
                     PrintJobs);
}

int RunCancel(const GlobalOptions& global, const CancelCommand& command) {
  const absl::Status status = client::RequestCancel(client::Connect(global.server, global.access),
                                                    command.job_id, command.caller);
  if (!status.ok()) return ServiceFailed(global, status);
  if (global.format == OutputFormat::kJson) {
    v1::CancelJobRequest cancelled;
    cancelled.set_job_id(command.job_id);
    cancelled.set_caller(command.caller);
    std::printf("%s\n", MessageAsJson(cancelled).c_str());
  } else {
    std::printf("job %s is cancelled\n", command.job_id.c_str());
  }
  return kExitOk;
}

}  // namespace hilbert_ring::cli

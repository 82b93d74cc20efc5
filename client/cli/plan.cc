#include "engine/plan/plan.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/table.h"
#include "client/cpp/errors.h"
#include "client/cpp/job_files.h"
#include "client/cpp/service.h"
#include "nlohmann/json.hpp"
#include "wire/codec.h"
#include "wire/control_characters.h"

namespace hilbert_ring::cli {
namespace {

constexpr int kMaxRangesShown = 3;

std::string FormatShard(const v1::WorkerPlan& worker) {
  std::string text;
  for (int i = 0; i < worker.shard_size(); ++i) {
    if (i == kMaxRangesShown) {
      return absl::StrCat(text, " and ", worker.shard_size() - i, " more");
    }
    absl::StrAppend(&text, i > 0 ? " " : "", "[", worker.shard(i).begin(), ", ",
                    worker.shard(i).end(), ")");
  }
  return text.empty() ? "-" : text;
}

void PrintWorkers(const v1::PlanResponse& plan) {
  std::vector<std::vector<std::string>> rows = {{"worker", "slots", "tokens", "work", "sends",
                                                 "receives", "memory", "shard", "accumulators",
                                                 "exchange", "order", "lists"}};
  for (int rank = 0; rank < plan.workers_size(); ++rank) {
    const v1::WorkerPlan& worker = plan.workers(rank);
    rows.push_back({absl::StrCat(rank), FormatShard(worker), FormatCount(worker.tokens()),
                    FormatFlops(worker.flops()), FormatBytes(worker.bytes_sent()),
                    FormatBytes(worker.bytes_received()), FormatBytes(worker.resident_bytes()),
                    FormatBytes(worker.shard_bytes()), FormatBytes(worker.accumulator_bytes()),
                    FormatBytes(worker.exchange_buffer_bytes()), FormatBytes(worker.order_bytes()),
                    FormatBytes(worker.list_bytes())});
  }
  std::fputs(FormatTable(rows).c_str(), stdout);
}

void PrintBranches(const v1::PlanResponse& plan) {
  std::vector<std::vector<std::string>> rows = {
      {"branch", "segment", "dilation", "local segments", "exchanged segments", "bytes exchanged"}};
  for (int i = 0; i < plan.branches_size(); ++i) {
    const v1::BranchPlan& branch = plan.branches(i);
    rows.push_back({absl::StrCat(i), FormatCount(branch.segment()), FormatCount(branch.dilation()),
                    FormatCount(branch.segments_local()), FormatCount(branch.segments_exchanged()),
                    FormatBytes(branch.bytes_exchanged())});
  }
  std::fputs(FormatTable(rows).c_str(), stdout);
}

void PrintTables(int64_t tokens, const v1::PlanResponse& plan) {
  std::string rows = absl::StrCat(FormatCount(tokens), " tokens");
  if (plan.travels() != v1::TRAVELS_UNSPECIFIED) {
    int64_t keys = 0;
    for (const v1::WorkerPlan& worker : plan.workers()) keys += worker.tokens();
    rows = absl::StrCat("queries: ", FormatCount(tokens), ", keys: ", FormatCount(keys), ",");
  }
  std::printf("%s over %d worker%s%s: %s, the busiest does %.3f times the mean\n\n", rows.c_str(),
              plan.workers_size(), plan.workers_size() == 1 ? "" : "s",
              plan.mirrored() ? ", mirrored to balance causal work" : "",
              FormatFlops(plan.flops()).c_str(), plan.busiest_over_mean());
  PrintWorkers(plan);
  std::printf("\n");
  PrintBranches(plan);
  if (plan.travels() != v1::TRAVELS_UNSPECIFIED) {
    std::printf("\n%s travel: %s\n",
                plan.travels() == v1::TRAVELS_KEYS ? "keys and values" : "queries",
                wire::EscapeControls(plan.travels_why()).c_str());
  }
  const double exchanged = static_cast<double>(plan.bytes_exchanged());
  const double naive = static_cast<double>(plan.bytes_exchanged_naive());
  std::printf("\nexchanged in %s ring steps: %s\n", FormatCount(plan.ring_steps()).c_str(),
              FormatBytes(exchanged).c_str());
  std::printf("  a naive ring: %s; this plan takes %s of it\n", FormatBytes(naive).c_str(),
              FormatPercent(exchanged, naive).c_str());
  if (plan.seconds() > 0) {
    std::printf("\npredicted to take %s when nothing else runs: %s\n",
                FormatSeconds(plan.seconds()).c_str(),
                wire::EscapeControls(plan.seconds_basis()).c_str());
  } else {
    std::printf("\npredicted time is unknown: %s\n",
                wire::EscapeControls(plan.seconds_basis()).c_str());
  }
  for (const std::string& note : plan.notes())
    std::printf("note: %s\n", wire::EscapeControls(note).c_str());
}

}  // namespace

int PrintPlan(const GlobalOptions& global, int64_t tokens, const v1::PlanResponse& plan) {
  if (global.format != OutputFormat::kJson) {
    PrintTables(tokens, plan);
    return kExitOk;
  }
  if (!nlohmann::json::accept(plan.json())) {
    return ServiceFailed(global, client::ProtocolError("a plan that is not JSON"));
  }
  std::printf("%s\n", wire::PrintableJson(plan.json()).c_str());
  return kExitOk;
}

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

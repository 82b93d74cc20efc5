#include "client/cli/print_plan.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/failure.h"
#include "client/cli/json_message.h"
#include "client/cli/table.h"
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
                                                 "exchange", "order"}};
  for (int rank = 0; rank < plan.workers_size(); ++rank) {
    const v1::WorkerPlan& worker = plan.workers(rank);
    rows.push_back({absl::StrCat(rank), FormatShard(worker), FormatCount(worker.tokens()),
                    FormatFlops(worker.flops()),
                    FormatBytes(static_cast<double>(worker.bytes_sent())),
                    FormatBytes(static_cast<double>(worker.bytes_received())),
                    FormatBytes(static_cast<double>(worker.resident_bytes())),
                    FormatBytes(static_cast<double>(worker.shard_bytes())),
                    FormatBytes(static_cast<double>(worker.accumulator_bytes())),
                    FormatBytes(static_cast<double>(worker.exchange_buffer_bytes())),
                    FormatBytes(static_cast<double>(worker.order_bytes()))});
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
                    FormatBytes(static_cast<double>(branch.bytes_exchanged()))});
  }
  std::fputs(FormatTable(rows).c_str(), stdout);
}

void PrintTables(int64_t tokens, const v1::PlanResponse& plan) {
  std::printf("%s tokens over %d worker%s%s: %s, the busiest does %.3f times the mean\n\n",
              FormatCount(tokens).c_str(), plan.workers_size(), plan.workers_size() == 1 ? "" : "s",
              plan.mirrored() ? ", mirrored to balance causal work" : "",
              FormatFlops(plan.flops()).c_str(), plan.busiest_over_mean());
  PrintWorkers(plan);
  std::printf("\n");
  PrintBranches(plan);
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
  const absl::StatusOr<std::string> json = CheckedJson(plan.json());
  if (!json.ok()) return ServiceFailed(global, json.status());
  std::printf("%s\n", json->c_str());
  return kExitOk;
}

}  // namespace hilbert_ring::cli

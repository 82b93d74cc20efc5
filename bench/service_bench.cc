// Whole jobs through the real service, as Markdown tables, which ./dev bench records: tokens/s,
// bytes exchanged against the plan and the naive ring, memory of each process against the plan.
#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/service/memory_watch.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::testing {

constexpr double kMiB = 1 << 20;

std::string PatternName(const JobSpec& spec) {
  std::vector<int64_t> segments, dilations;
  for (const Branch& branch : spec.branches) {
    segments.push_back(branch.segment);
    dilations.push_back(branch.dilation);
  }
  return absl::StrCat("[", absl::StrJoin(segments, ", "), "] / [", absl::StrJoin(dilations, ", "),
                      "]");
}

void PrintHeader() {
  std::printf(
      "| tokens | pattern | workers | tokens/s | compute s | exposed exchange s | exchanged MB | "
      "planned MB | naive MB | worker MiB above idle | planned MiB | off by | coordinator MiB |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
}

void RunJob(const JobSpec& spec, int workers) {
  auto cluster = Cluster::Start({.workers = workers});
  if (!cluster.ok()) {
    std::printf("%s\n", cluster.status().ToString().c_str());
    return;
  }
  auto stub = (*cluster)->Stub();
  MemoryWatch watch(**cluster);
  const auto report = RunConstantJob(*stub, spec, std::chrono::minutes(30));
  watch.Stop();
  if (!report.ok()) {
    std::printf("%s\n", report.status().ToString().c_str());
    return;
  }
  double exposed = 0;
  std::vector<int64_t> planned;
  for (const v1::WorkerReport& worker : report->workers()) {
    exposed = std::max(exposed, worker.exposed_exchange_seconds());
    planned.push_back(worker.memory_predicted_bytes());
  }
  std::sort(planned.begin(), planned.end());
  std::vector<std::string> measured, predicted, off;
  const std::vector<int64_t> peaks = watch.WorkerPeaks();
  for (size_t i = 0; i < peaks.size() && i < planned.size(); ++i) {
    measured.push_back(absl::StrFormat("%.0f", peaks[i] / kMiB));
    predicted.push_back(absl::StrFormat("%.0f", planned[i] / kMiB));
    off.push_back(absl::StrFormat("%+.1f %%", 100.0 * (peaks[i] - planned[i]) / planned[i]));
  }
  std::printf(
      "| %lld | %s | %d | %.0f | %.2f | %.3f | %.3f | %.3f | %.3f | %s | %s | %s | %.0f |\n",
      static_cast<long long>(spec.tokens), PatternName(spec).c_str(), workers,
      report->tokens_per_second(), report->compute_seconds(), exposed,
      report->bytes_exchanged() / 1e6, report->bytes_exchanged_planned() / 1e6,
      report->bytes_exchanged_naive() / 1e6, absl::StrJoin(measured, ", ").c_str(),
      absl::StrJoin(predicted, ", ").c_str(), absl::StrJoin(off, ", ").c_str(),
      watch.coordinator_peak() / kMiB);
  std::fflush(stdout);
}

}  // namespace hilbert_ring::testing

// Argument: the number of tokens (262,144).
int main(int argc, char** argv) {
  using namespace hilbert_ring::testing;
  int64_t tokens = 262'144;
  if (argc > 2 || (argc == 2 && !absl::SimpleAtoi(argv[1], &tokens)) || tokens < 8192) {
    std::fprintf(stderr, "service_bench [TOKENS], at least 8192\n");
    return 2;
  }
  std::printf("\n### Memory of %lld tokens\n\n", static_cast<long long>(tokens));
  PrintHeader();
  for (const hilbert_ring::Branch& longest : {hilbert_ring::Branch{8192, 4}, {tokens, 64}}) {
    hilbert_ring::JobSpec spec = hilbert_ring::PublishedSpec(tokens);
    spec.branches.back() = longest;
    for (const int workers : {1, 2, 4}) RunJob(spec, workers);
  }
  return 0;
}

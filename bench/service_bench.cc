// Figures of whole jobs through the real service, as Markdown tables, which ./dev bench records:
// tokens/s, bytes exchanged against the plan and the naive ring, memory of each process against the
// plan.
#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/service/memory_watch.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::testing {

constexpr double kMiB = 1 << 20;

JobSpec Reports(int64_t tokens, DataType dtype, std::vector<Branch> branches, Mixing mixing) {
  JobSpec spec = PlainSpec({.tokens = tokens, .heads = 8, .dim = 64});
  spec.dtype = dtype;
  spec.branches = std::move(branches);
  spec.mixing = mixing;
  return spec;
}

std::string PatternName(const JobSpec& spec) {
  std::vector<int64_t> segments, dilations;
  for (const Branch& branch : spec.branches) {
    segments.push_back(branch.segment);
    dilations.push_back(branch.dilation);
  }
  return absl::StrCat("[", absl::StrJoin(segments, ", "), "] / [", absl::StrJoin(dilations, ", "),
                      "] ", spec.mixing == Mixing::kLse ? "lse" : "head groups",
                      spec.causal ? " causal" : "",
                      spec.dtype == DataType::kFloat32 ? ", float32" : ", bfloat16");
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

void MemoryFallsWithWorkers() {
  std::printf("\n### Memory of 262,144 tokens\n\n");
  PrintHeader();
  for (const std::vector<Branch>& branches : {std::vector<Branch>{{2048, 1}, {4096, 2}, {8192, 4}},
                                              std::vector<Branch>{{2048, 1}, {262144, 64}}}) {
    for (const int workers : {1, 2, 4}) {
      RunJob(Reports(262144, DataType::kFloat32, branches, Mixing::kHeadGroups), workers);
    }
  }
}

void BytesOfPatterns() {
  std::printf("\n### Bytes exchanged, 32,768 tokens over four workers\n\n");
  PrintHeader();
  for (const Mixing mixing : {Mixing::kHeadGroups, Mixing::kLse}) {
    for (const std::vector<Branch>& branches :
         {std::vector<Branch>{{2048, 1}, {4096, 2}, {8192, 4}},
          std::vector<Branch>{{2048, 1}, {16384, 4}}, std::vector<Branch>{{2048, 1}, {32768, 16}},
          std::vector<Branch>{{2048, 1}, {16384, 4}, {32768, 16}}}) {
      RunJob(Reports(32768, DataType::kBFloat16, branches, mixing), 4);
    }
  }
  JobSpec causal =
      Reports(32768, DataType::kBFloat16, {{2048, 1}, {32768, 16}}, Mixing::kHeadGroups);
  causal.causal = true;
  RunJob(causal, 4);
}

void AMillionTokens() {
  std::printf("\n### 1,048,576 tokens of the reports' configuration\n\n");
  PrintHeader();
  RunJob(
      Reports(1 << 20, DataType::kBFloat16, {{2048, 1}, {4096, 2}, {8192, 4}}, Mixing::kHeadGroups),
      2);
}

}  // namespace hilbert_ring::testing

// Arguments choose parts by name; without one, all run.
int main(int argc, char** argv) {
  const auto wanted = [&](const std::string& part) {
    for (int i = 1; i < argc; ++i) {
      if (part == argv[i]) return true;
    }
    return argc == 1;
  };
  using namespace hilbert_ring::testing;
  if (wanted("bytes")) BytesOfPatterns();
  if (wanted("memory")) MemoryFallsWithWorkers();
  if (wanted("million")) AMillionTokens();
  return 0;
}

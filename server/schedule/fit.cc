#include "server/schedule/fit.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/plan/saturating.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// Planning for very many workers takes long, and nobody waits for the exact number.
constexpr int kMostPlannedWorkers = 1024;

int64_t Needed(const Plan& plan, int rank) {
  return SaturatingAdd(plan.costs.workers[rank].resident_bytes(), kRunOverheadBytes);
}

bool Holds(const JobSpec& spec, int workers, int64_t limit,
           const std::function<bool()>& cancelled) {
  const auto plan = MakePlan(spec, workers, cancelled);
  if (!plan.ok()) return false;
  for (int rank = 0; rank < workers; ++rank) {
    if (Needed(*plan, rank) > limit) return false;
  }
  return true;
}

// The smallest number of workers above `workers` of `limit` bytes that hold the job; 0 when none of
// the numbers tried does.
int SmallestThatHolds(const Plan& plan, int workers, int64_t limit,
                      const std::function<bool()>& cancelled) {
  if (limit <= kRunOverheadBytes) return 0;
  int64_t total = 0;
  for (int rank = 0; rank < workers; ++rank) {
    total = SaturatingAdd(total, plan.costs.workers[rank].resident_bytes());
  }
  int64_t high = std::max<int64_t>(workers + 1, total / (limit - kRunOverheadBytes));
  int64_t low = high - 1;  // does not hold it
  while (true) {
    if (high > kMostPlannedWorkers || (cancelled && cancelled())) return 0;
    if (Holds(plan.spec, static_cast<int>(high), limit, cancelled)) break;
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (Holds(plan.spec, static_cast<int>(middle), limit, cancelled) ? high : low) = middle;
  }
  return static_cast<int>(high);
}

std::string Mebibytes(int64_t bytes) { return absl::StrCat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

}  // namespace

absl::Status CheckFits(const Plan& plan, std::span<const int64_t> limits,
                       const std::function<bool()>& cancelled) {
  const int workers = plan.shards.workers();
  for (int rank = 0; rank < workers; ++rank) {
    if (Needed(plan, rank) <= limits[rank]) continue;
    const int64_t limit = *std::min_element(limits.begin(), limits.end());
    const int enough = SmallestThatHolds(plan, workers, limit, cancelled);
    if (cancelled && cancelled()) return absl::CancelledError("the plan is no longer wanted");
    return wire::ErrorOf(
        wire::reason::kDoesNotFit,
        absl::StrCat(
            "the job does not fit: worker ", rank + 1, " of ", workers, " would need ",
            Mebibytes(Needed(plan, rank)), ", its memory limit is ", Mebibytes(limits[rank]), "; ",
            enough > 0 ? absl::StrCat(enough, " workers of ", Mebibytes(limit), " would hold it")
                       : absl::StrCat("no number of workers up to ", kMostPlannedWorkers,
                                      " of that memory would hold it")));
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server

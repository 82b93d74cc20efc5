#include "server/schedule/fit.h"

#include <algorithm>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/base/saturating.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr int kMostPlannedWorkers = 1024;  // more take too long to plan

int64_t Needed(const Plan& plan, int rank) {
  return SaturatingAdd(plan.costs.workers[rank].resident_bytes(), kRunOverheadBytes);
}

absl::StatusOr<bool> Holds(const Planner& planner, int workers, int64_t limit) {
  const auto plan = planner(workers);
  if (absl::IsCancelled(plan.status())) return plan.status();
  if (!plan.ok()) return false;
  for (int rank = 0; rank < workers; ++rank) {
    if (Needed(*plan, rank) > limit) return false;
  }
  return true;
}

// The smallest number of workers of `limit` bytes that hold the job, above the plan's; 0 if no
// number tried does.
absl::StatusOr<int> SmallestThatHolds(const Plan& plan, int64_t limit, const Planner& planner) {
  if (limit <= kRunOverheadBytes) return 0;
  const int workers = plan.shards.workers();
  int64_t total = 0;
  for (int rank = 0; rank < workers; ++rank) {
    total = SaturatingAdd(total, plan.costs.workers[rank].resident_bytes());
  }
  int64_t high = std::max<int64_t>(workers + 1, total / (limit - kRunOverheadBytes));
  int64_t low = high - 1;  // too few
  while (true) {
    if (high > kMostPlannedWorkers) return 0;
    ASSIGN_OR_RETURN(const bool holds, Holds(planner, static_cast<int>(high), limit));
    if (holds) break;
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    ASSIGN_OR_RETURN(const bool holds, Holds(planner, static_cast<int>(middle), limit));
    (holds ? high : low) = middle;
  }
  return static_cast<int>(high);
}

std::string Mebibytes(int64_t bytes) { return absl::StrCat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

}  // namespace

absl::Status CheckFits(const Plan& plan, std::span<const int64_t> limits, const Planner& planner) {
  const int workers = plan.shards.workers();
  for (int rank = 0; rank < workers; ++rank) {
    if (Needed(plan, rank) <= limits[rank]) continue;
    const int64_t limit = *std::min_element(limits.begin(), limits.end());
    ASSIGN_OR_RETURN(const int enough, SmallestThatHolds(plan, limit, planner));
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

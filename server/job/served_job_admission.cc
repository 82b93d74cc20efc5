// Admission before the queue: quota, memory, and the numbers of workers that can run the job.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/job/served_job.h"
#include "server/rows/coordinates.h"
#include "server/schedule/fit.h"
#include "wire/status.h"

namespace hilbert_ring::server {

absl::Status ServedJob::ReserveQuota() {
  auto share = services_.limits.quotas.Reserve(
      caller_,
      {.tokens = spec().tokens, .bytes = std::min(work_->client_bytes(), kMostQuotaBytes + 1)});
  if (!share.ok()) return share.status();
  quota_.emplace(*std::move(share));
  return absl::OkStatus();
}

absl::Status ServedJob::ReserveOrder() {
  JobMemory& memory = services_.memory.order_memory;
  const auto reserve = [&memory](const std::string& what, int64_t bytes,
                                 std::optional<JobMemory::Reservation>& to) {
    auto reserved = memory.Reserve(bytes);
    if (!reserved.ok()) {
      return wire::ErrorOf(
          wire::reason::kWaitingMemory,
          absl::StrCat(what, " take ", bytes, " bytes, jobs that run or wait have ", memory.used(),
                       " of ", memory.limit(), " (--total-order-memory-limit)"));
    }
    to = *std::move(reserved);
    return absl::OkStatus();
  };
  if (work_->result_bytes() > 0) {
    RETURN_IF_ERROR(reserve("states: pooled results", work_->result_bytes(), result_memory_));
  }
  if (!work_->has_coordinates()) return absl::OkStatus();
  return reserve(absl::StrCat("ordering: coordinates of ", spec().tokens, " tokens"),
                 Coordinates::MemoryBytes(spec()), order_memory_);
}

Planner ServedJob::MakePlanner() const {
  return work_->MakePlanner([this] { return !client_.stop().why().ok(); });
}

// An error names what would hold a job that cannot run at all.
absl::StatusOr<std::vector<JobSize>> ServedJob::Sizes() {
  auto sizes = SizesWithout(LeftOut());
  if (sizes.ok() || failed_.empty()) return sizes;
  failed_.clear();
  return SizesWithout(hung_);
}

bool ServedJob::CanRunOn(const Member& member) const {
  return work_->CanRunOn(member) && rows_->Reaches(member);
}

Members ServedJob::LeftOut() const {
  Members left_out = hung_;
  left_out.insert(left_out.end(), failed_.begin(), failed_.end());
  return left_out;
}

absl::StatusOr<std::vector<JobSize>> ServedJob::SizesWithout(const Members& without) {
  asked_.clear();
  const Members there = services_.cluster.membership.Live();
  Members live = there;
  std::erase_if(live, [&](const auto& member) {
    return std::find(without.begin(), without.end(), member) != without.end();
  });
  if (live.empty()) {
    return wire::ErrorOf(wire::reason::kNoWorkers, "no worker is there");
  }
  std::erase_if(live, [this](const auto& member) { return !CanRunOn(*member); });
  if (live.empty()) {
    RETURN_IF_ERROR(rows_->CheckReachable(there));
    return work_->NobodyCan();
  }
  int workers = static_cast<int>(std::min<size_t>(live.size(), kMaxWorkers));
  const int asked = services_.limits.settings.job_workers;
  if (asked > 0) workers = std::min(asked, workers);
  PlanGate::Turn turn;
  if (!PlansFast(spec(), workers)) {
    auto awaited = services_.limits.plans.Await(caller_.turns, client_.stop(),
                                                services_.limits.settings.queue_timeout);
    if (!awaited.ok()) return awaited.status();
    turn = *std::move(awaited);
  }
  const Planner planner = MakePlanner();
  auto sizes =
      SizesOf(planner, asked > 0 ? workers : 1, workers, services_.cluster.rate.flops_per_second());
  if (!sizes.ok()) return wire::WithReason(sizes.status(), wire::reason::kInvalidSpec);
  for (const JobSize& size : *sizes) {
    const auto holds = std::ranges::count_if(live, [&size](const auto& member) {
      return size.BytesOn(*member) <= member->memory_limit_bytes;
    });
    if (holds < size.workers) continue;
    asked_ = there;
    return sizes;
  }
  std::vector<int64_t> limits;
  limits.reserve(live.size());
  for (const auto& member : live) limits.push_back(member->memory_limit_bytes);
  std::sort(limits.rbegin(), limits.rend());
  const Planner counted = CountedOn(live, planner);
  const auto plan = counted(workers);
  if (!plan.ok()) return wire::WithReason(plan.status(), wire::reason::kInvalidSpec);
  return CheckFits(*plan, std::vector<int64_t>(workers, limits[workers - 1]), counted);
}

}  // namespace hilbert_ring::server

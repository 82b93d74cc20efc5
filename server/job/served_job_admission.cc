// A job's way to the queue: its first message, work and rows, quota and memory, and the numbers of
// workers that can run it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/job/encode_work.h"
#include "server/job/job_open.h"
#include "server/job/named_files.h"
#include "server/job/served_job.h"
#include "server/rows/job_input.h"
#include "server/schedule/fit.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

int64_t OrderMemoryLimit(const CoordinatorSettings& settings) {
  return settings.total_order_memory_limit_bytes / 4;
}

// The coordinator keeps coordinates of an ordering and of biases.
int64_t CoordinateBytes(const JobWork& work) {
  const int64_t ordered = work.has_coordinates() ? Coordinates::MemoryBytes(work.spec()) : 0;
  return SaturatingAdd(ordered, BiasCoordinates::MemoryBytes(work.spec()));
}

std::string CoordinatesOf(const JobWork& work) {
  return absl::StrCat(work.has_coordinates() ? "ordering" : "alibi", ": coordinates of ",
                      KeyTokens(work.spec()), " tokens");
}

}  // namespace

SpecLimits LimitsOf(const CoordinatorSettings& settings) {
  return {.max_tokens = settings.max_tokens};
}

absl::Status ServedJob::Open() {
  RETURN_IF_ERROR(ReadOpen(client_, open_));
  course_.Enter(JobPhase::kValidating);
  ASSIGN_OR_RETURN(work_, MakeWork());
  open_.clear_what();
  RETURN_IF_ERROR(CheckRowSizes());
  if (open_.files_size() == 0) {
    rows_ = std::make_unique<ClientRows>(client_, open_);
  } else {
    ASSIGN_OR_RETURN(rows_, NamedFiles::Open(services_.memory.data_root, caller_, open_, *work_));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<JobWork>> ServedJob::MakeWork() const {
  if (method_ == JobMethod::kEncode) {
    if (!open_.has_encode()) return BadOpen("Open has no encode, which Encode takes");
    return MakeEncodeWork(open_.encode(), services_.memory.models,
                          {.limits = LimitsOf(services_.limits.settings),
                           .threads = MostThreads(services_.cluster.membership.Live()),
                           .max_result_bytes = OrderMemoryLimit(services_.limits.settings),
                           .check_rows = services_.limits.settings.check_rows});
  }
  if (open_.has_encode()) return BadOpen("Open has encode, which Attend does not take");
  ASSIGN_OR_RETURN(const JobSpec spec, wire::DecodeJobSpec(open_.spec()));
  if (absl::Status status = Validate(spec, LimitsOf(services_.limits.settings)); !status.ok()) {
    return wire::WithReason(std::move(status), wire::reason::kInvalidSpec);
  }
  return MakeAttentionWork(spec, open_.want_lse(), services_.limits.settings.check_rows);
}

absl::Status ServedJob::CheckRowSizes() const {
  const CoordinatorSettings& settings = services_.limits.settings;
  const RowSizes& rows = work_->shape().rows;
  for (int i = 0; i < kTensorKinds; ++i) {
    const auto tensor = static_cast<TensorKind>(i);
    if (rows[tensor] > wire::kMaxPayloadBytes) {
      return wire::WithReason(
          absl::OutOfRangeError(absl::StrCat(
              i <= static_cast<int>(TensorKind::kLse) ? "heads" : "states", ": a row of ",
              wire::TensorName(wire::TensorOf(tensor)), " has ", rows[tensor],
              " bytes, the limit of a chunk is ", wire::kMaxPayloadBytes)),
          wire::reason::kInvalidSpec);
    }
  }
  if (const int64_t bytes = CoordinateBytes(*work_); bytes > OrderMemoryLimit(settings)) {
    return wire::ErrorOf(
        wire::reason::kDoesNotFit,
        absl::StrCat(CoordinatesOf(*work_), " take ", bytes,
                     " bytes at the coordinator, whose limit is ", OrderMemoryLimit(settings),
                     " (a quarter of --total-order-memory-limit)"));
  }
  return absl::OkStatus();
}

absl::Status ServedJob::ReserveQuota() {
  const int64_t bytes = std::min(work_->client_bytes(), kMostQuotaBytes + 1);
  ASSIGN_OR_RETURN(auto share, services_.limits.quotas.Reserve(
                                   caller_, {.tokens = MostRows(spec()), .bytes = bytes}));
  quota_.emplace(std::move(share));
  return absl::OkStatus();
}

// A job has coordinates, or an encoder's pooled results, or neither.
absl::Status ServedJob::ReserveOrder() {
  JobMemory& memory = services_.memory.order_memory;
  const int64_t of_coordinates = CoordinateBytes(*work_);
  const int64_t bytes = of_coordinates > 0 ? of_coordinates : work_->result_bytes();
  if (bytes == 0) return absl::OkStatus();
  auto reserved = memory.Reserve(bytes);
  if (!reserved.ok()) {
    const std::string what = of_coordinates > 0 ? CoordinatesOf(*work_) : "states: pooled results";
    return wire::ErrorOf(
        wire::reason::kWaitingMemory,
        absl::StrCat(what, " take ", bytes, " bytes, jobs that run or wait have ", memory.used(),
                     " of ", memory.limit(), " (--total-order-memory-limit)"));
  }
  job_->order_memory = *std::move(reserved);
  return absl::OkStatus();
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
    return std::ranges::find(without, member) != without.end();
  });
  if (live.empty()) return wire::ErrorOf(wire::reason::kNoWorkers, "no worker is there");
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
    ASSIGN_OR_RETURN(turn, services_.limits.plans.Await(caller_.turns, client_.stop(),
                                                        services_.limits.settings.queue_timeout));
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

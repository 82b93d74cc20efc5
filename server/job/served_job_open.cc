// The first message: the work, its rows, and their limits.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/job/client_rows.h"
#include "server/job/encode_work.h"
#include "server/job/job_open.h"
#include "server/job/named_files.h"
#include "server/job/served_job.h"
#include "server/rows/coordinates.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

int64_t OrderMemoryLimit(const CoordinatorSettings& settings) {
  return settings.total_order_memory_limit_bytes / 4;
}

}  // namespace

SpecLimits LimitsOf(const CoordinatorSettings& settings) {
  return {
      .max_tokens = settings.max_tokens,
  };
}

absl::Status ServedJob::Open() {
  RETURN_IF_ERROR(ReadOpen(client_, open_));
  course_.Enter(JobPhase::kValidating);
  ASSIGN_OR_RETURN(work_, MakeWork());
  open_.clear_what();
  RETURN_IF_ERROR(CheckRowSizes());
  return OpenRows();
}

absl::Status ServedJob::OpenRows() {
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
  return MakeAttentionWork(
      spec, {.want_lse = open_.want_lse(), .check_rows = services_.limits.settings.check_rows});
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
  if (work_->has_coordinates() && Coordinates::MemoryBytes(spec()) > OrderMemoryLimit(settings)) {
    return wire::ErrorOf(
        wire::reason::kDoesNotFit,
        absl::StrCat("ordering: coordinates of ", spec().tokens, " tokens take ",
                     Coordinates::MemoryBytes(spec()), " bytes at the coordinator, whose limit is ",
                     OrderMemoryLimit(settings), " (a quarter of --total-order-memory-limit)"));
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server

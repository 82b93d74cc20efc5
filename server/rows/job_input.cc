#include "server/rows/job_input.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// Of rows that came, those of [begin, end).
void AddCommon(const RowSet& rows, RowSpan wanted, std::vector<RowSpan>& common) {
  auto range = rows.ranges().upper_bound(wanted.begin);
  if (range != rows.ranges().begin()) --range;
  for (; range != rows.ranges().end() && range->first < wanted.end; ++range) {
    const RowSpan span{std::max(range->first, wanted.begin), std::min(range->second, wanted.end)};
    if (span.begin < span.end) common.push_back(span);
  }
}

}  // namespace

JobInput::JobInput(const JobSpec& spec, OrderCache& orders)
    : spec_(spec), orders_(orders), ledger_(spec) {}

absl::Status JobInput::Begin() {
  if (spec_.ordering && spec_.ordering->coordinate_axes > 0) {
    coordinates_.emplace(spec_);
    return absl::OkStatus();
  }
  return MakeOrder({});
}

absl::Status JobInput::MakeOrder(std::span<const int64_t> coords) {
  auto order = orders_.Get(spec_, coords);
  if (!order.ok()) return wire::WithReason(order.status(), wire::reason::kBadCoordinates);
  order_ = *std::move(order);
  order_known_ = true;
  return absl::OkStatus();
}

absl::Status JobInput::Accept(const v1::Chunk& chunk, const wire::Payload& payload) {
  RETURN_IF_ERROR(ledger_.Accept(chunk, payload));
  if (chunk.tensor() != v1::TENSOR_COORDS) return absl::OkStatus();
  coordinates_->Place(chunk, payload);
  if (!ledger_.Complete(v1::TENSOR_COORDS)) return absl::OkStatus();
  absl::Status status = MakeOrder(coordinates_->values());
  coordinates_.reset();
  return status;
}

std::vector<JobInput::Missing> JobInput::Forget(std::span<const RowSpan> slots) {
  std::vector<Missing> missing;
  if (slots.empty()) return missing;
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    const bool tokens_are_slots =
        !spec_.ordering || (tensor == v1::TENSOR_Q && spec_.ordering->scope == OrderScope::kKv);
    std::vector<RowSpan> tokens;
    if (tokens_are_slots) {
      for (const RowSpan& span : slots) AddCommon(ledger_.Rows(tensor), span, tokens);
    } else {
      AddCommon(ledger_.Rows(tensor), {0, spec_.tokens}, tokens);
    }
    for (const RowSpan& span : tokens) ledger_.Forget(tensor, span.begin, span.end);
    if (!tokens.empty()) missing.push_back({tensor, std::move(tokens)});
  }
  return missing;
}

}  // namespace hilbert_ring::server

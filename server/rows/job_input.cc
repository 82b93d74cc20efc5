#include "server/rows/job_input.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

void AddCommon(const RowSet& rows, RowSpan wanted, std::vector<RowSpan>& common) {
  auto range = rows.ranges().upper_bound(wanted.begin);
  if (range != rows.ranges().begin()) --range;
  for (; range != rows.ranges().end() && range->first < wanted.end; ++range) {
    const RowSpan span{std::max(range->first, wanted.begin), std::min(range->second, wanted.end)};
    if (span.begin < span.end) common.push_back(span);
  }
}

}  // namespace

int64_t Coordinates::MemoryBytes(const JobSpec& spec) {
  // 8 bytes a coordinate, the order, and 32 a token for sorting.
  return OrderBytes(spec) + KeyTokens(spec) * (8 * int64_t{spec.ordering->coordinate_axes} + 32);
}

int64_t Coordinates::OrderBytes(const JobSpec& spec) {
  return 16 * KeyTokens(spec);  // 8 to 16 a token
}

Coordinates::Coordinates(const JobSpec& spec)
    : axes_(spec.ordering->coordinate_axes), values_(KeyTokens(spec) * axes_) {}

void Coordinates::Place(const v1::Chunk& chunk, const wire::Payload& payload) {
  int64_t* to = values_.data() + chunk.first_row() * axes_;
  wire::PayloadReader reader(payload);
  std::vector<uint32_t> values(chunk.rows() * axes_);
  reader.Read(values.data(), static_cast<int64_t>(values.size() * sizeof(uint32_t)));
  std::copy(values.begin(), values.end(), to);
}

JobInput::JobInput(const JobShape& shape, OrderCache& orders)
    : shape_(shape), orders_(orders), ledger_(shape) {}

absl::Status JobInput::Begin() {
  if (order_known_ || coordinates_) return absl::OkStatus();
  if (BiasAxes(shape_.spec) > 0) bias_.emplace(shape_.spec);
  if (shape_.spec.ordering && shape_.spec.ordering->coordinate_axes > 0) {
    coordinates_.emplace(shape_.spec);
    return absl::OkStatus();
  }
  return MakeOrder({});
}

absl::Status JobInput::MakeOrder(std::span<const int64_t> coords) {
  auto order = orders_.Get(shape_.spec, coords);
  if (!order.ok()) return wire::WithReason(order.status(), wire::reason::kBadCoordinates);
  order_ = *std::move(order);
  order_known_ = true;
  return absl::OkStatus();
}

absl::Status JobInput::Accept(const v1::Chunk& chunk, const wire::Payload& payload,
                              Checksum checksum) {
  RETURN_IF_ERROR(ledger_.Accept(chunk, payload, checksum));
  if (chunk.tensor() == v1::TENSOR_BIAS_COORDS) return bias_->Place(chunk, payload);
  if (chunk.tensor() != v1::TENSOR_COORDS) return absl::OkStatus();
  coordinates_->Place(chunk, payload);
  if (!ledger_.Complete(v1::TENSOR_COORDS)) return absl::OkStatus();
  absl::Status status = MakeOrder(coordinates_->values());
  coordinates_.reset();
  return status;
}

std::vector<JobInput::Missing> JobInput::Forget(const LostRows& lost) {
  std::vector<Missing> missing;
  for (const TensorKind kind : kInputKinds) {
    if (!shape_.rows.Has(kind)) continue;
    const v1::Tensor tensor = wire::TensorOf(kind);
    const bool queries = kind == TensorKind::kQ && IsRectangular(shape_.spec);
    const std::vector<RowSpan>& slots = queries ? lost.queries : lost.slots;
    if (slots.empty()) continue;
    const RowSet& come = ledger_.Rows(tensor);
    std::vector<RowSpan> rows;
    if (shape_.slides != nullptr) {
      for (const RowSpan& span : slots) {
        const SlideRows::Tiles tiles = shape_.slides->TilesOf(span.begin, span.end);
        AddCommon(come, {tiles.begin, tiles.end}, rows);
      }
    } else if (shape_.InOrder(kind)) {
      for (const RowSpan& span : slots) AddCommon(come, span, rows);
    } else {
      AddCommon(come, {0, come.size()}, rows);
    }
    for (const RowSpan& span : rows) ledger_.Forget(tensor, span.begin, span.end);
    if (!rows.empty()) missing.push_back({tensor, std::move(rows)});
  }
  return missing;
}

}  // namespace hilbert_ring::server

#include "server/worker/delivered_rows.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

absl::Status AddSlots(const google::protobuf::RepeatedPtrField<v1::SlotRange>& ranges,
                      RowSet& slots) {
  for (const v1::SlotRange& range : ranges) {
    if (range.begin() < 0 || range.begin() >= range.end() || range.end() > slots.size() ||
        !slots.Add(range.begin(), range.end())) {
      return absl::InvalidArgumentError(absl::StrCat("delivered slots ", range.begin(), " to ",
                                                     range.end(), " of ", slots.size()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Delivered> DeliveredOf(const v1::RunOpen& open, int64_t tokens) {
  Delivered delivered(tokens);
  for (const v1::DeliveredRows& rows : open.delivered()) {
    const std::optional<TensorKind> tensor = wire::TensorKindOf(rows.tensor());
    if (!tensor || !IsOutput(*tensor)) {
      return absl::InvalidArgumentError(
          absl::StrCat("delivered rows of ", wire::TensorName(rows.tensor())));
    }
    RETURN_IF_ERROR(AddSlots(rows.slots(), delivered.of(*tensor)));
  }
  return delivered;
}

}  // namespace hilbert_ring::server

#include "engine/spec/field_error.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring {
namespace {

constexpr absl::string_view kField = "hilbert-ring/field";
constexpr absl::string_view kLimit = "hilbert-ring/limit";

}  // namespace

absl::Status WithField(absl::Status status, absl::string_view field, std::optional<int64_t> limit) {
  status.SetPayload(kField, absl::Cord(field));
  if (limit) status.SetPayload(kLimit, absl::Cord(absl::StrCat(*limit)));
  return status;
}

std::optional<FieldOfError> FieldOf(const absl::Status& status) {
  const auto field = status.GetPayload(kField);
  if (!field) return std::nullopt;
  FieldOfError found{.field = std::string(*field)};
  int64_t limit = 0;
  if (const auto text = status.GetPayload(kLimit);
      text && absl::SimpleAtoi(std::string(*text), &limit)) {
    found.limit = limit;
  }
  return found;
}

}  // namespace hilbert_ring

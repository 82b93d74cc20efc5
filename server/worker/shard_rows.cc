#include "server/worker/shard_rows.h"

#include <bit>
#include <iterator>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens travel as they lie in memory");

absl::Status Misshapen(const std::string& what) {
  return wire::ErrorOf(wire::reason::kRowsMisshapen, what);
}

}  // namespace

ShardRows::ShardRows(const JobShape& shape, const Plan& plan, int rank, ShardStore& store)
    : rows_(shape.rows),
      has_order_(shape.spec.ordering.has_value()),
      store_(store),
      unsent_(std::ssize(shape.UnsentRows(plan.shards, rank))),
      arrived_(store.rows(), rows_.inputs(), shape.UnsentRows(plan.shards, rank)) {}

absl::Status ShardRows::Place(const v1::OrderPart& part) {
  const auto size = static_cast<int64_t>(store_.tokens().size());
  const auto count = static_cast<int64_t>(part.tokens().size() / sizeof(int64_t));
  if (part.tokens().size() % sizeof(int64_t) != 0 || part.first_local_row() < 0 ||
      part.first_local_row() > size || count > size - part.first_local_row()) {
    return Misshapen(absl::StrCat("order part of ", part.tokens().size(), " bytes at row ",
                                  part.first_local_row(), " of ", size));
  }
  absl::Status status = store_.WriteTokens(part.first_local_row(), count, part.tokens().data());
  if (status.ok()) ordered_ += count;
  return status;
}

absl::Status ShardRows::Place(const v1::ShardRows& rows) {
  const std::optional<TensorKind> found = wire::TensorKindOf(rows.tensor());
  if (!found || !IsInput(*found) || !rows_.Has(*found)) {
    return Misshapen(absl::StrCat("rows of ", wire::TensorName(rows.tensor())));
  }
  const TensorKind kind = *found;
  int64_t& placed = placed_[static_cast<int>(kind)];
  const std::string& payload = rows.payload();
  const int64_t row_bytes = rows_[kind];
  const bool listed = rows.local_rows_size() > 0;
  if (rows.rows() < 1 || rows.rows() > store_.rows() - unsent_ - placed ||
      static_cast<int64_t>(payload.size()) != rows.rows() * row_bytes ||
      (listed && rows.local_rows_size() != rows.rows())) {
    return Misshapen(absl::StrCat(rows.rows(), " rows of ", wire::TensorName(rows.tensor()), ", ",
                                  rows.local_rows_size(), " of them listed, in ", payload.size(),
                                  " bytes; a row has ", row_bytes, " and the shard ", store_.rows(),
                                  " rows, of which ", placed, " had come"));
  }
  if (wire::Crc32c(payload) != rows.crc32c()) {
    return wire::ErrorOf(wire::reason::kChecksumMismatch,
                         absl::StrCat("rows of ", wire::TensorName(rows.tensor()),
                                      " changed on their way from the coordinator: wrong crc32c"));
  }
  if (!listed) {
    if (rows.first_local_row() < 0 || rows.first_local_row() > store_.rows() - rows.rows()) {
      return Misshapen(absl::StrCat("first_local_row is ", rows.first_local_row(), " for ",
                                    rows.rows(), " rows of ", store_.rows()));
    }
    RETURN_IF_ERROR(store_.Write(kind, rows.first_local_row(), rows.rows(), payload.data()));
    arrived_.Add(rows.first_local_row(), rows.rows());
  } else {
    for (const int64_t row : rows.local_rows()) {
      if (row < 0 || row >= store_.rows()) {
        return Misshapen(absl::StrCat("local row ", row, " of ", store_.rows()));
      }
    }
    const std::span<const int64_t> local_rows(rows.local_rows().data(),
                                              static_cast<size_t>(rows.local_rows_size()));
    RETURN_IF_ERROR(store_.WriteRows(kind, local_rows, payload.data()));
    for (const int64_t row : local_rows) arrived_.Add(row, 1);
  }
  placed += rows.rows();
  return absl::OkStatus();
}

absl::Status ShardRows::CheckComplete() const {
  const int64_t rows = store_.rows() - unsent_;
  for (const TensorKind kind : kInputKinds) {
    const int64_t placed = placed_[static_cast<int>(kind)];
    if (!rows_.Has(kind) || placed == rows) continue;
    return Misshapen(absl::StrCat("of ", rows, " rows of ", wire::TensorName(wire::TensorOf(kind)),
                                  " came ", placed));
  }
  return CheckOrder();
}

absl::Status ShardRows::CheckOrder() const {
  const int64_t order = has_order_ ? store_.rows() : 0;
  if (ordered_ == order) return absl::OkStatus();
  return Misshapen(absl::StrCat("of ", order, " tokens of the order came ", ordered_));
}

}  // namespace hilbert_ring::server

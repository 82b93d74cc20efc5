#include "server/worker/message_input.h"

#include <bit>
#include <iterator>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens travel as they lie in memory");

absl::Status Misshapen(const std::string& what) {
  return wire::ErrorOf(wire::reason::kChunkMisshapen, what);
}

}  // namespace

MessageInput::MessageInput(const JobShape& shape, const Plan& plan, int rank, ShardStore& store)
    : rows_(shape.rows),
      has_order_(shape.spec.ordering.has_value()),
      store_(store),
      unsent_(std::ssize(shape.UnsentRows(plan.shards, rank))),
      arrived_(store.rows(), rows_.inputs(), shape.UnsentRows(plan.shards, rank)) {}

// In one piece.
const void* MessageInput::Whole(const wire::Payload& payload) {
  if (payload.parts().size() == 1) return payload.parts().front().data();
  whole_.resize(static_cast<size_t>(payload.bytes()));
  wire::PayloadReader(payload).Read(whole_.data(), payload.bytes());
  return whole_.data();
}

absl::Status MessageInput::Place(const v1::OrderPart& part, const wire::Payload& tokens) {
  constexpr auto kTokenBytes = static_cast<int64_t>(sizeof(int64_t));
  const auto size = static_cast<int64_t>(store_.tokens().size());
  const int64_t count = tokens.bytes() / kTokenBytes;
  if (tokens.bytes() % kTokenBytes != 0 || part.first_local_row() < 0 ||
      part.first_local_row() > size || count > size - part.first_local_row()) {
    return Misshapen(absl::StrCat("order part of ", tokens.bytes(), " bytes at row ",
                                  part.first_local_row(), " of ", size));
  }
  if (store_.host_memory()) {
    wire::PayloadReader(tokens).Read(store_.tokens().data() + part.first_local_row(),
                                     tokens.bytes());
  } else {
    RETURN_IF_ERROR(store_.WriteTokens(part.first_local_row(), count, Whole(tokens)));
  }
  ordered_ += count;
  return absl::OkStatus();
}

absl::Status MessageInput::Place(const v1::ShardRows& rows, const wire::Payload& payload) {
  const std::optional<TensorKind> found = wire::TensorKindOf(rows.tensor());
  if (!found || !IsInput(*found) || !rows_.Has(*found)) {
    return Misshapen(absl::StrCat("rows of ", wire::TensorName(rows.tensor())));
  }
  const TensorKind kind = *found;
  int64_t& placed = placed_[static_cast<int>(kind)];
  const int64_t row_bytes = rows_[kind];
  const bool listed = rows.local_rows_size() > 0;
  if (rows.rows() < 1 || rows.rows() > store_.rows() - unsent_ - placed ||
      payload.bytes() != rows.rows() * row_bytes ||
      (listed && rows.local_rows_size() != rows.rows())) {
    return Misshapen(absl::StrCat(rows.rows(), " rows of ", wire::TensorName(rows.tensor()), ", ",
                                  rows.local_rows_size(), " of them listed, in ", payload.bytes(),
                                  " bytes; a row has ", row_bytes, " and the shard ", store_.rows(),
                                  " rows, of which ", placed, " had come"));
  }
  if (payload.Crc32c() != rows.crc32c()) {
    return wire::ErrorOf(wire::reason::kChecksumMismatch,
                         absl::StrCat("rows of ", wire::TensorName(rows.tensor()),
                                      " changed on their way from the coordinator: wrong crc32c"));
  }
  wire::PayloadReader reader(payload);
  if (!listed) {
    if (rows.first_local_row() < 0 || rows.first_local_row() > store_.rows() - rows.rows()) {
      return Misshapen(absl::StrCat("first_local_row is ", rows.first_local_row(), " for ",
                                    rows.rows(), " rows of ", store_.rows()));
    }
    if (store_.host_memory()) {
      reader.Read(store_.Row(kind, rows.first_local_row()), payload.bytes());
    } else {
      RETURN_IF_ERROR(store_.Write(kind, rows.first_local_row(), rows.rows(), Whole(payload)));
    }
    arrived_.Add(rows.first_local_row(), rows.rows());
  } else {
    for (const int64_t row : rows.local_rows()) {
      if (row < 0 || row >= store_.rows()) {
        return Misshapen(absl::StrCat("local row ", row, " of ", store_.rows()));
      }
    }
    const std::span<const int64_t> local_rows(rows.local_rows().data(),
                                              static_cast<size_t>(rows.local_rows_size()));
    if (store_.host_memory()) {
      for (const int64_t row : local_rows) reader.Read(store_.Row(kind, row), row_bytes);
    } else {
      RETURN_IF_ERROR(store_.WriteRows(kind, local_rows, Whole(payload)));
    }
    for (const int64_t row : local_rows) arrived_.Add(row, 1);
  }
  placed += rows.rows();
  return absl::OkStatus();
}

absl::Status MessageInput::Take(const v1::RunRequest& message, const wire::Payload& payload) {
  if (message.has_order()) return Place(message.order(), payload);
  if (message.has_rows()) return Place(message.rows(), payload);
  return absl::InvalidArgumentError("expected an order part, rows or RowsDone");
}

absl::Status MessageInput::Finish(const std::function<absl::Status(int64_t)>& /*come*/) {
  const int64_t rows = store_.rows() - unsent_;
  for (const TensorKind kind : kInputKinds) {
    const int64_t placed = placed_[static_cast<int>(kind)];
    if (!rows_.Has(kind) || placed == rows) continue;
    return Misshapen(absl::StrCat("of ", rows, " rows of ", wire::TensorName(wire::TensorOf(kind)),
                                  " came ", placed));
  }
  const int64_t order = has_order_ ? store_.rows() : 0;
  if (ordered_ == order) return absl::OkStatus();
  return Misshapen(absl::StrCat("of ", order, " tokens of the order came ", ordered_));
}

}  // namespace hilbert_ring::server

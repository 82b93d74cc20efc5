#include "server/worker/message_input.h"

#include <algorithm>
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
      store_(store),
      arrived_(store.rows(), rows_.inputs(), shape.UnsentRows(plan.shards, rank)) {}

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
  const std::optional<TensorKind> kind = wire::TensorKindOf(rows.tensor());
  const bool listed = rows.local_rows_size() > 0;
  const auto outside = [this](int64_t row) { return row < 0 || row >= store_.rows(); };
  if (!kind || !rows_.Has(*kind) || rows.rows() < 1 ||
      payload.bytes() != rows.rows() * rows_[*kind] ||
      (listed ? rows.local_rows_size() != rows.rows() ||
                    std::ranges::any_of(rows.local_rows(), outside)
              : outside(rows.first_local_row()) ||
                    outside(rows.first_local_row() + rows.rows() - 1))) {
    return Misshapen(absl::StrCat(rows.rows(), " rows of ", wire::TensorName(rows.tensor()),
                                  " from row ", rows.first_local_row(), " on, ",
                                  rows.local_rows_size(), " of them listed, in ", payload.bytes(),
                                  " bytes; the shard has ", store_.rows(), " rows"));
  }
  if (payload.Crc32c() != rows.crc32c()) {
    return wire::ErrorOf(wire::reason::kChecksumMismatch,
                         absl::StrCat("rows of ", wire::TensorName(rows.tensor()),
                                      " changed on their way from the coordinator: wrong crc32c"));
  }
  wire::PayloadReader reader(payload);
  if (!listed) {
    if (store_.host_memory()) {
      reader.Read(store_.Row(*kind, rows.first_local_row()), payload.bytes());
    } else {
      RETURN_IF_ERROR(store_.Write(*kind, rows.first_local_row(), rows.rows(), Whole(payload)));
    }
    arrived_.Add(rows.first_local_row(), rows.rows());
    return absl::OkStatus();
  }
  const std::span<const int64_t> local_rows(rows.local_rows().data(),
                                            static_cast<size_t>(rows.local_rows_size()));
  if (store_.host_memory()) {
    for (const int64_t row : local_rows) reader.Read(store_.Row(*kind, row), rows_[*kind]);
  } else {
    RETURN_IF_ERROR(store_.WriteRows(*kind, local_rows, Whole(payload)));
  }
  for (const int64_t row : local_rows) arrived_.Add(row, 1);
  return absl::OkStatus();
}

absl::Status MessageInput::Take(const v1::RunRequest& message, const wire::Payload& payload) {
  if (message.has_order()) return Place(message.order(), payload);
  if (message.has_rows()) return Place(message.rows(), payload);
  return absl::InvalidArgumentError("expected an order part, rows or RowsDone");
}

absl::Status MessageInput::Finish(const std::function<absl::Status(int64_t)>& /*come*/) {
  if (rows() == store_.rows() && ordered_ == std::ssize(store_.tokens())) return absl::OkStatus();
  return Misshapen(absl::StrCat("of ", store_.rows(), " rows came ", rows(), ", of ",
                                store_.tokens().size(), " tokens of the order ", ordered_));
}

}  // namespace hilbert_ring::server

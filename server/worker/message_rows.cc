#include "server/worker/message_rows.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/shard/run_message.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens travel as they lie in memory");

absl::Status Misshapen(const std::string& what) {
  return wire::ErrorOf(wire::reason::kChunkMisshapen, what);
}

// The payload in one piece, in `copied` if it comes in several.
const void* Whole(const wire::Payload& payload, std::vector<char>& copied) {
  if (payload.parts().size() == 1) return payload.parts().front().data();
  copied.resize(static_cast<size_t>(payload.bytes()));
  wire::PayloadReader(payload).Read(copied.data(), payload.bytes());
  return copied.data();
}

// Copies rows of a device to host memory, which the next read reuses.
OutputSource SourceOf(const ShardStore& store) {
  return {.tokens = store.tokens(),
          .read = [&store, copied = std::make_shared<std::string>()](
                      TensorKind tensor, int64_t local_row,
                      int64_t rows) -> absl::StatusOr<std::string_view> {
            const auto bytes = static_cast<size_t>(rows * store.layout().RowBytes(tensor));
            if (store.host_memory()) {
              return std::string_view(reinterpret_cast<const char*>(store.Row(tensor, local_row)),
                                      bytes);
            }
            copied->resize(bytes);
            RETURN_IF_ERROR(store.Read(tensor, local_row, rows, copied->data()));
            return std::string_view(*copied);
          }};
}

}  // namespace

MessageWay::MessageWay(const JobShape& shape, const Plan& plan, int rank, ShardStore& store,
                       const v1::RunOpen& open)
    : rows_(shape.rows),
      store_(store),
      arrived_(store.layout().input_rows(), shape.UnsentRows(plan.shards, rank)),
      outputs_(plan, rank, SourceOf(store), open.want_lse(), DeliveredOf(open, plan.spec.tokens)),
      pool_(MostPayloadBytes(plan.rows, store.rows())) {}

absl::StatusOr<int64_t> PlaceOrder(const v1::OrderPart& part, const wire::Payload& tokens,
                                   ShardStore& store) {
  constexpr TensorKind kCoordinates = TensorKind::kBiasCoords;
  const bool coordinates = part.coordinates();
  const int64_t first = part.first_local_row();
  const int64_t size = coordinates ? store.rows(kCoordinates) : std::ssize(store.tokens());
  const int64_t row_bytes = coordinates && size > 0 ? store.layout().RowBytes(kCoordinates)
                                                    : static_cast<int64_t>(sizeof(int64_t));
  const int64_t count = tokens.bytes() / row_bytes;
  if (tokens.bytes() % row_bytes != 0 || first < 0 || first > size || count > size - first) {
    return Misshapen(
        absl::StrCat("order part of ", tokens.bytes(), " bytes at row ", first, " of ", size));
  }
  if (store.host_memory()) {
    void* const to = coordinates ? static_cast<void*>(store.Row(kCoordinates, first))
                                 : store.tokens().data() + first;
    wire::PayloadReader(tokens).Read(to, tokens.bytes());
  } else if (std::vector<char> copied; coordinates) {
    RETURN_IF_ERROR(store.Write(kCoordinates, first, count, Whole(tokens, copied)));
  } else {
    RETURN_IF_ERROR(store.WriteTokens(first, count, Whole(tokens, copied)));
  }
  return count;
}

absl::Status MessageWay::Place(const v1::ShardRows& rows, const wire::Payload& payload) {
  const std::optional<TensorKind> kind = wire::TensorKindOf(rows.tensor());
  const bool listed = rows.local_rows_size() > 0;
  const int64_t size = kind ? store_.rows(*kind) : 0;
  const auto outside = [size](int64_t row) { return row < 0 || row >= size; };
  if (!kind || !rows_.Has(*kind) || rows.rows() < 1 ||
      payload.bytes() != rows.rows() * rows_[*kind] ||
      (listed ? rows.local_rows_size() != rows.rows() ||
                    std::ranges::any_of(rows.local_rows(), outside)
              : outside(rows.first_local_row()) ||
                    outside(rows.first_local_row() + rows.rows() - 1))) {
    return Misshapen(absl::StrCat(rows.rows(), " rows of ", wire::TensorName(rows.tensor()),
                                  " from row ", rows.first_local_row(), " on, ",
                                  rows.local_rows_size(), " of them listed, in ", payload.bytes(),
                                  " bytes; the shard has ", size, " rows"));
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
      RETURN_IF_ERROR(
          store_.Write(*kind, rows.first_local_row(), rows.rows(), Whole(payload, whole_)));
    }
    arrived_.Add(rows.first_local_row(), rows.rows());
    return absl::OkStatus();
  }
  const std::span<const int64_t> local_rows(rows.local_rows().data(),
                                            static_cast<size_t>(rows.local_rows_size()));
  if (store_.host_memory()) {
    for (const int64_t row : local_rows) reader.Read(store_.Row(*kind, row), rows_[*kind]);
  } else {
    RETURN_IF_ERROR(store_.WriteRows(*kind, local_rows, Whole(payload, whole_)));
  }
  for (const int64_t row : local_rows) arrived_.Add(row, 1);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> MessageWay::Take(const v1::RunRequest& message,
                                         const wire::Payload& payload) {
  if (message.has_order()) {
    ASSIGN_OR_RETURN(const int64_t tokens, PlaceOrder(message.order(), payload, store_));
    ordered_ += tokens;
  } else if (message.has_rows()) {
    RETURN_IF_ERROR(Place(message.rows(), payload));
  } else {
    return absl::InvalidArgumentError("expected an order part, rows or RowsDone");
  }
  return arrived_.prefix();
}

absl::Status MessageWay::FinishInput() {
  const int64_t came = arrived_.prefix();
  const int64_t wanted = std::ssize(store_.tokens()) + store_.rows(TensorKind::kBiasCoords);
  if (came == store_.rows() && ordered_ == wanted) return absl::OkStatus();
  return Misshapen(absl::StrCat("of ", store_.rows(), " rows came ", came, ", of ", wanted,
                                " tokens of the order and rows of coordinates ", ordered_));
}

Delivered DeliveredOf(const v1::RunOpen& open, int64_t tokens) {
  Delivered delivered(tokens);
  for (const v1::DeliveredRows& rows : open.delivered()) {
    RowSet& slots = delivered.of(*wire::TensorKindOf(rows.tensor()));
    for (const v1::SlotRange& range : rows.slots()) slots.Add(range.begin(), range.end());
  }
  return delivered;
}

absl::Status MessageWay::Put(int64_t rows_final, RunReplies& replies,
                             grpc::WriteOptions /*options*/) {
  v1::OutputChunk chunk;
  std::string_view payload;
  while (outputs_.Next(rows_final, chunk, payload)) {
    RETURN_IF_ERROR(replies.Write(JoinOutput(chunk, outputs_.first_slot(), pool_.Copy(payload))));
  }
  return outputs_.status();
}

}  // namespace hilbert_ring::server

#include "server/worker/message_output.h"

#include <memory>
#include <string>
#include <string_view>

#include "engine/base/return_if_error.h"
#include "server/shard/run_message.h"
#include "wire/codec.h"

namespace hilbert_ring::server {
namespace {

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

Delivered DeliveredOf(const v1::RunOpen& open, int64_t tokens) {
  Delivered delivered(tokens);
  for (const v1::DeliveredRows& rows : open.delivered()) {
    const auto tensor = wire::TensorKindOf(rows.tensor());
    for (const v1::SlotRange& range : rows.slots()) {
      if (tensor) delivered.of(*tensor).Add(range.begin(), range.end());
    }
  }
  return delivered;
}

MessageOutput::MessageOutput(const RunWork& work, const ShardStore& store, const v1::RunOpen& open)
    : rows_(work.plan(), work.rank(), SourceOf(store), open.want_lse(),
            DeliveredOf(open, work.plan().spec.tokens)),
      pool_(MostPayloadBytes(work.plan().rows, store.rows())) {}

absl::Status MessageOutput::Put(int64_t rows_final, RunReplies& replies,
                                grpc::WriteOptions /*options*/) {
  v1::OutputChunk chunk;
  std::string_view payload;
  while (rows_.Next(rows_final, chunk, payload)) {
    RETURN_IF_ERROR(replies.Write(JoinOutput(chunk, rows_.first_slot(), pool_.Copy(payload))));
  }
  return rows_.status();
}

}  // namespace hilbert_ring::server

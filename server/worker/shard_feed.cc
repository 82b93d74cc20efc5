#include "server/worker/shard_feed.h"

#include "engine/base/return_if_error.h"
#include "server/shard/run_message.h"

namespace hilbert_ring::server {

absl::Status ShardFeed::AwaitDone() {
  RunMessage<v1::RunRequest> message;
  while (true) {
    entry_.ExpectFeedBy(Clock::now() + timeout_);
    if (!stream_.Read(&message.buffer)) return RunCancelled();
    if (!Split(message)) {
      return absl::InvalidArgumentError("a message of the Run stream is no RunRequest");
    }
    if (message.fields.has_done()) return absl::OkStatus();
    if (message.fields.has_elsewhere()) continue;
    RETURN_IF_ERROR(input_.Take(message.fields, message.payload));
    course_.AddRows(input_.rows());
  }
}

absl::Status ShardFeed::Finish(int64_t shard_rows, std::chrono::milliseconds compute_limit) {
  RETURN_IF_ERROR(input_.Finish([this](int64_t rows) {
    course_.AddRows(rows);
    return course_.failure();
  }));
  course_.AddAllRows(shard_rows, compute_limit);
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server

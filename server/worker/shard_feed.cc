#include "server/worker/shard_feed.h"

#include <spdlog/spdlog.h>

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

absl::Status ShardFeed::Receive(const v1::RunOpen& open) {
  if (!open.rows_there() || !input_.in_place()) {
    const absl::Status done = AwaitDone();
    entry_.ExpectFeedBy(Deadline::max());
    if (entry_.starved()) {
      spdlog::warn("job {}, rank {}: no rows and no news of them for {} ms (--feed-timeout)",
                   open.job_id(), open.rank(), timeout_.count());
    }
    RETURN_IF_ERROR(done);
  }
  RETURN_IF_ERROR(input_.Finish([this](int64_t rows) {
    course_.AddRows(rows);
    return course_.failure();
  }));
  course_.AddAllRows(std::chrono::milliseconds(open.compute_timeout_ms()));
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server

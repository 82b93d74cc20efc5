// Takes a run's messages from its stream until all its rows are there.
#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "server/worker/active_calls.h"
#include "server/worker/run_course.h"
#include "server/worker/run_replies.h"
#include "server/worker/shard_input.h"

namespace hilbert_ring::server {

// Used by the call's thread. References outlive it.
class ShardFeed {
 public:
  ShardFeed(RunStream& stream, ShardInput& input, RunCourse& course, ActiveCalls::Entry& entry,
            std::chrono::milliseconds timeout)
      : stream_(stream), input_(input), course_(course), entry_(entry), timeout_(timeout) {}

  // Until RowsDone and the last row. Reports rows to the course. CANCELLED if the stream ends
  // before; the input's errors.
  absl::Status Receive(const v1::RunOpen& open);

 private:
  absl::Status AwaitDone();

  RunStream& stream_;
  ShardInput& input_;
  RunCourse& course_;
  ActiveCalls::Entry& entry_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace hilbert_ring::server

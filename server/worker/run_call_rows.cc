// What a run does until all its rows are there.
#include <algorithm>
#include <chrono>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "server/process/deadline.h"
#include "server/shard/run_message.h"
#include "server/worker/run_call.h"
#include "server/worker/shard_rows.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::hours kLongestCompute{24 * 365};

}  // namespace

absl::Status RunCall::ReceiveRows() {
  ShardRows rows(work_->shape(), work_->plan(), rank_, *store_);
  if (shared_ != nullptr && open_.rows_there()) return TakeDone(rows);
  RunMessage<v1::RunRequest> message;
  const v1::RunRequest& request = message.fields;
  const auto fed = [this] { fed_until_ = std::chrono::steady_clock::now() + state_.feed_timeout; };
  fed();
  const FeedWatch::Entry watched(state_.feeds, [this] { EndUnfed(); });
  for (; stream_.Read(&message.buffer); fed()) {
    if (!Split(message)) return Malformed();
    absl::Status status;
    switch (request.message_case()) {
      case v1::RunRequest::kOrder:
        status = rows.Place(request.order(), message.payload);
        break;
      case v1::RunRequest::kRows:
        status = rows.Place(request.rows(), message.payload);
        arrived_.Open(rows.prefix());
        break;
      case v1::RunRequest::kArrived:
        if (shared_ == nullptr) return UnexpectedMessage("rows, for no memory is shared");
        arrived_.Open(request.arrived().rows());
        break;
      case v1::RunRequest::kDone:
        return TakeDone(rows);
      case v1::RunRequest::kElsewhere:
        break;
      default:
        status = UnexpectedMessage("an order part, rows or RowsDone");
    }
    RETURN_IF_ERROR(status);
  }
  return Cancelled();
}

// All rows are there, or in their files, from which they are read now.
absl::Status RunCall::TakeDone(const ShardRows& rows) {
  fed_until_ = Deadline::max();
  if (shared_ == nullptr) {
    RETURN_IF_ERROR(files_ == nullptr ? rows.CheckComplete() : rows.CheckOrder());
  }
  if (files_ != nullptr) {
    RETURN_IF_ERROR(ReadFiles());
  }
  {
    const MutexLock lock(mutex_);
    rows_done_ = std::chrono::steady_clock::now();
    if (open_.compute_timeout_ms() > 0) {
      const int64_t longest = milliseconds(kLongestCompute).count();
      compute_due_ = *rows_done_ + milliseconds(std::min(open_.compute_timeout_ms(), longest));
    }
  }
  if (files_ != nullptr) {
    const MutexLock sending(sending_);
    v1::RunResponse response;
    response.mutable_read();
    if (!all_sent_ && sent_.ok()) sent_ = Send(response);
  }
  arrived_.Open(store_->rows());
  return absl::OkStatus();
}

// The gate of the last rows stays closed until it is noted that all are there.
absl::Status RunCall::ReadFiles() {
  bool executed = false;
  absl::Status read = files_->Read([&](int64_t rows) {
    {
      const MutexLock lock(mutex_);
      executed = executed_;  // a peer was lost: nobody wants the rest
    }
    if (executed || context_.IsCancelled()) return Cancelled();
    if (rows < store_->rows()) arrived_.Open(rows);
    return absl::OkStatus();
  });
  return executed ? absl::OkStatus() : read;
}

}  // namespace hilbert_ring::server

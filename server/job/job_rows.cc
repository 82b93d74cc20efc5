#include "server/job/job_rows.h"

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {

absl::Status ClientRows::Resume(const std::vector<JobInput::Missing>& missing) {
  for (const JobInput::Missing& tensor : missing) {
    if (!open_.can_resend()) {
      return wire::ErrorOf(
          wire::reason::kRowsLost,
          absl::StrCat(
              "rows of ", wire::TensorName(tensor.tensor),
              " were lost with a worker, no copy is held (--copy-memory), and the client does not "
              "send rows again"));
    }
    v1::AttendResponse response;
    v1::Resend& resend = *response.mutable_resend();
    resend.set_attempt(open_.attempt());
    resend.set_tensor(tensor.tensor);
    for (const RowSpan& tokens : tensor.tokens) {
      v1::Resend::Range& range = *resend.add_ranges();
      range.set_first_row(tokens.begin);
      range.set_rows(tokens.end - tokens.begin);
    }
    // Not this execution's stop: no later execution requests these rows again.
    RETURN_IF_ERROR(client_.Write(response, client_.stop()));
  }
  return absl::OkStatus();
}

// A client that can send rows again keeps its side open; others close it behind the last row.
absl::Status ClientRows::Feed(const JobInput& input, const TakeRows& take, const JobStop& stop) {
  ClientMessage message;
  while (!open_.can_resend() || !input.Complete()) {
    ASSIGN_OR_RETURN(const bool more, client_.Read(message, stop));
    if (!more) break;
    RETURN_IF_ERROR(take(message));
  }
  return input.CheckComplete();
}

}  // namespace hilbert_ring::server

#include "server/job/job_open.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/job_id.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kMostBytes = 128;
constexpr size_t kShownBytes = 32;

}  // namespace

absl::Status BadOpen(const std::string& message) {
  return wire::ErrorOf(wire::reason::kInvalidOpen, message);
}

absl::Status CheckJobId(const std::string& job_id) {
  const bool printable =
      std::all_of(job_id.begin(), job_id.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (job_id.size() <= kMostBytes && printable) return absl::OkStatus();
  const bool whole = job_id.size() <= kShownBytes;
  return BadOpen(absl::StrCat("job_id '", absl::CHexEscape(job_id.substr(0, kShownBytes)),
                              whole ? "'" : "...'", " has ", job_id.size(),
                              " bytes, must be at most ", kMostBytes,
                              " printable ASCII characters without spaces"));
}

absl::Status ReadOpen(JobClient& client, v1::Open& open) {
  ClientMessage message;
  ASSIGN_OR_RETURN(const bool more, client.Read(message, client.stop()));
  if (!more || !message.request.has_open()) return BadOpen("the first message must be Open");
  open = std::move(*message.request.mutable_open());
  if (absl::Status status = CheckJobId(open.job_id()); !status.ok()) {
    open.set_job_id("?");
    return status;
  }
  if (open.job_id().empty()) open.set_job_id(wire::DrawJobId());
  if (open.attempt() >= 0) return absl::OkStatus();
  return BadOpen(absl::StrCat("attempt is ", open.attempt(), ", must not be negative"));
}

}  // namespace hilbert_ring::server

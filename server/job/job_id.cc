#include "server/job/job_id.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kMostBytes = 128;
constexpr size_t kShownBytes = 32;

}  // namespace

absl::Status CheckJobId(const std::string& job_id) {
  const bool printable =
      std::all_of(job_id.begin(), job_id.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (job_id.size() <= kMostBytes && printable) return absl::OkStatus();
  const bool whole = job_id.size() <= kShownBytes;
  return absl::InvalidArgumentError(
      absl::StrCat("job_id '", absl::CHexEscape(job_id.substr(0, kShownBytes)),
                   whole ? "'" : "...'", " has ", job_id.size(), " bytes, must be at most ",
                   kMostBytes, " printable ASCII characters without spaces"));
}

}  // namespace hilbert_ring::server

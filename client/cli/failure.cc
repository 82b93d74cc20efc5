#include "client/cli/failure.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "wire/status.h"

namespace hilbert_ring::cli {
namespace {

std::string Describe(const absl::Status& status) {
  const std::string code = absl::StatusCodeToString(status.code());
  const std::string reason = wire::ReasonOf(status);
  std::string text = absl::StrCat(code, ": ", status.message());
  if (!reason.empty() && reason != code) absl::StrAppend(&text, " (reason ", reason, ")");
  return text;
}

void PrintError(const absl::Status& status) {
  std::fprintf(stderr, "hilbert-ring: %s\n", Describe(status).c_str());
}

}  // namespace

int BadInput(const absl::Status& status) {
  PrintError(status);
  return kExitBadInput;
}

int ServiceFailed(const GlobalOptions& global, const absl::Status& status) {
  PrintError(status);
  if (absl::IsUnavailable(status)) {
    std::fprintf(stderr,
                 "hilbert-ring: the server is %s; --server or HILBERT_RING_SERVER name another\n",
                 global.server.c_str());
  }
  return kExitFailed;
}

void PrintRetry(const client::AttendProgress& progress, int attempt) {
  const std::string when = progress.away
                               ? "when the service is back"
                               : absl::StrFormat("in %.1f s", absl::ToDoubleSeconds(progress.wait));
  std::fprintf(stderr, "hilbert-ring: %s; attempt %d follows %s\n",
               Describe(progress.last_failure).c_str(), attempt, when.c_str());
}

}  // namespace hilbert_ring::cli

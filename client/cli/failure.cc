#include "client/cli/failure.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "wire/status.h"

namespace hilbert_ring::cli {
namespace {

void PrintError(const absl::Status& status) {
  const std::string code = absl::StatusCodeToString(status.code());
  const std::string reason = wire::ReasonOf(status);
  std::string line = absl::StrCat("hilbert-ring: ", code, ": ", status.message());
  if (!reason.empty() && reason != code) absl::StrAppend(&line, " (reason ", reason, ")");
  std::fprintf(stderr, "%s\n", line.c_str());
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

}  // namespace hilbert_ring::cli

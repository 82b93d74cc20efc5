#include "server/process/threads.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "wire/status.h"

namespace hilbert_ring::server {

absl::Status NoThreads(const std::system_error& error) {
  return wire::ErrorOf(wire::reason::kNoThreads,
                       absl::StrCat("no thread can be started: ", error.what()));
}

absl::StatusOr<std::thread> StartThread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return NoThreads(error);
  }
}

}  // namespace hilbert_ring::server

#include "client/cpp/threads.h"

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "wire/status.h"

namespace hilbert_ring::client {

absl::StatusOr<std::jthread> StartThread(std::function<void(const std::stop_token&)> body) {
  try {
    return std::jthread(std::move(body));
  } catch (const std::system_error& error) {
    return wire::ErrorOf(
        wire::reason::kNoThreads,
        absl::StrCat("no thread can be started on this machine: ", error.what(),
                     "; limits of the user or of the container (ulimit -u, pids) are reached"));
  }
}

absl::Status CheckThreads() {
  return StartThread([](const std::stop_token&) {}).status();
}

}  // namespace hilbert_ring::client

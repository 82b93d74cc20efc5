#include "server/coordinator/token_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::server {

absl::StatusOr<TokenMemory> TokenMemory::Make(const std::string& token) {
  Descriptor memory(memfd_create("hilbert-ring-join-token", MFD_CLOEXEC));
  if (memory.number() < 0 || fchmod(memory.number(), S_IRUSR) != 0 ||
      write(memory.number(), token.data(), token.size()) != static_cast<ssize_t>(token.size())) {
    return absl::UnavailableError(absl::StrCat("join token: memory: ", std::strerror(errno)));
  }
  return TokenMemory(std::move(memory));
}

std::string TokenMemory::path() const {
  return absl::StrCat("/proc/", getpid(), "/fd/", memory_.number());
}

}  // namespace hilbert_ring::server

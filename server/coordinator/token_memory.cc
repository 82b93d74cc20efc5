#include "server/coordinator/token_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::server {

absl::StatusOr<TokenMemory> TokenMemory::Make(const std::string& token) {
  TokenMemory memory(memfd_create("hilbert-ring-join-token", MFD_CLOEXEC));
  if (memory.descriptor_ < 0 || fchmod(memory.descriptor_, S_IRUSR) != 0 ||
      write(memory.descriptor_, token.data(), token.size()) != static_cast<ssize_t>(token.size())) {
    return absl::UnavailableError(absl::StrCat("join token: memory: ", std::strerror(errno)));
  }
  return memory;
}

TokenMemory::~TokenMemory() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::string TokenMemory::path() const {
  return absl::StrCat("/proc/", getpid(), "/fd/", descriptor_);
}

}  // namespace hilbert_ring::server

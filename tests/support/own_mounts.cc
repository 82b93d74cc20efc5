#include "tests/support/own_mounts.h"

#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::testing {

absl::Status EnterOwnMounts() {
  thread_local bool entered = false;
  if (entered) return absl::OkStatus();
  const auto because = [](const char* what) {
    return absl::FailedPreconditionError(absl::StrCat(what, ": ", std::strerror(errno)));
  };
  if (unshare(CLONE_NEWNS) != 0) return because("unshare");
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return because("mount /");
  entered = true;
  return absl::OkStatus();
}

}  // namespace hilbert_ring::testing

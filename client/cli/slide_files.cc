#include "client/cli/slide_files.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/failure.h"
#include "client/cli/job_run.h"
#include "client/cli/package_command.h"

namespace hilbert_ring::cli {
namespace {

constexpr absl::Duration kLookAgain = absl::Milliseconds(20);

// Returns the status of waitpid. An interrupt ends the child.
absl::StatusOr<int> WaitForSlide(pid_t child) {
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "--slide: waitpid");
    if (Interrupted()) kill(child, SIGTERM);
    absl::SleepFor(kLookAgain);
  }
  return status;
}

}  // namespace

absl::StatusOr<SlideFiles> SlideFiles::Create(const SlideFlags& flags) {
  if (flags.file.empty()) return SlideFiles(std::filesystem::path());
  std::error_code error;
  std::string folder =
      (std::filesystem::temp_directory_path(error) / "hilbert-ring-slide-XXXXXX").string();
  if (error || mkdtemp(folder.data()) == nullptr) {
    return absl::ErrnoToStatus(error ? error.value() : errno,
                               absl::StrCat("--slide: ", folder, " cannot be made (TMPDIR)"));
  }
  return SlideFiles(std::filesystem::path(folder));
}

SlideFiles::SlideFiles(SlideFiles&& other) noexcept
    : folder_(std::exchange(other.folder_, {})), has_coords_(other.has_coords_) {}

SlideFiles::~SlideFiles() {
  std::error_code error;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
}

int SlideFiles::Write(const GlobalOptions& global, const SlideFlags& flags,
                      std::optional<int64_t> tile_size) {
  has_coords_ = tile_size.has_value();
  std::vector<std::string> words = {"hilbert-ring", "slide", "--tiles", tiles()};
  if (has_coords_) {
    words.insert(words.end(), {"--coords", coords(), absl::StrCat("--tile-size=", *tile_size)});
  }
  for (const auto& [flag, value] : flags.options) {
    if (!value.empty()) words.push_back(absl::StrCat(flag, "=", value));
  }
  if (global.format == OutputFormat::kJson) words.push_back("--json");
  words.insert(words.end(), {"--", flags.file});
  CatchInterrupts();
  pid_t child = 0;
  if (const int failed = Spawn("/proc/self/exe", std::move(words), STDERR_FILENO, child)) {
    return ServiceFailed(global,
                         absl::ErrnoToStatus(failed, "--slide: the command slide cannot start"));
  }
  const absl::StatusOr<int> status = WaitForSlide(child);
  if (!status.ok()) return ServiceFailed(global, status.status());
  if (Interrupted()) return ServiceFailed(global, absl::CancelledError("interrupted"));
  if (WIFEXITED(*status)) return WEXITSTATUS(*status);
  return ServiceFailed(
      global, absl::AbortedError(
                  absl::StrCat("--slide: signal ", WTERMSIG(*status), " ended the command slide")));
}

std::string SlideFiles::tiles() const { return folder_ / "tiles.npy"; }

std::string SlideFiles::coords() const { return has_coords_ ? folder_ / "coords.npy" : ""; }

}  // namespace hilbert_ring::cli

#include "client/cli/slide_files.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/failure.h"
#include "client/cli/job_run.h"

namespace hilbert_ring::cli {
namespace {

constexpr char kOwnProgram[] = "/proc/self/exe";
constexpr absl::Duration kLookAgain = absl::Milliseconds(20);

struct SlideOption {
  const char* flag;
  const char* type;
  const char* help;
};

// The package parses their values.
constexpr SlideOption kSlideOptions[] = {
    {"--layout", kSlideLayouts, "layout of --slide (default: by its names and attributes)"},
    {"--features", "NAME", "data set of --slide, or its encoder (default: features or feats)"},
    {"--coordinates", "NAME", "data set of --slide with coordinates (default: coords)"},
    {kPatchesFlag, "FILE",
     "file with the coordinates of --slide or their attributes (default: in a folder beside it)"},
    {"--coord-scale", "NUMBER", "factor of --slide's coordinates (default: by its attributes)"},
    {"--coords-are", "tiles|pixels",
     "unit of --slide's coordinates: columns and rows, or the model's pixels (default: by its "
     "attributes)"}};

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

// The child reads no input and writes only errors.
absl::StatusOr<pid_t> SpawnSlide(std::vector<std::string> words) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawn(&child, kOwnProgram, &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return absl::ErrnoToStatus(failed, "--slide: the command slide cannot start");
  return child;
}

}  // namespace

void AddSlideFlags(CLI::App& app, SlideFlags& flags) {
  const CLI::Validator given(
      [](const std::string& text) { return text.empty() ? "is empty, must be given" : ""; }, "");
  CLI::Option* const slide =
      app.add_option(
             "--slide", flags.file,
             "slide pipeline's file instead of --tiles and --coords: HDF5, .pt or .npz; the Python "
             "package first writes it to TMPDIR as .npy")
          ->type_name("FILE")
          ->check(given);
  for (const char* flag : {"--tiles", "--coords"}) slide->excludes(app.get_option(flag));
  for (const SlideOption& option : kSlideOptions) {
    app.add_option(option.flag, flags.options[option.flag], option.help)
        ->type_name(option.type)
        ->check(given)
        ->needs(slide);
  }
}

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
  const absl::StatusOr<pid_t> child = SpawnSlide(std::move(words));
  if (!child.ok()) return ServiceFailed(global, child.status());
  const absl::StatusOr<int> status = WaitForSlide(*child);
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

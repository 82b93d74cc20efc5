#include "client/cpp/by_reference.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/cpp/conversation.h"
#include "client/cpp/errors.h"
#include "client/cpp/job_request.h"
#include "client/cpp/pending_file.h"
#include "client/cpp/service.h"
#include "engine/base/descriptor.h"
#include "engine/base/return_if_error.h"
#include "nlohmann/json.hpp"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMarkBytes = 128;

absl::Status NotSeen(const std::string& why) { return absl::FailedPreconditionError(why); }

// Returns the first line of a regular file, or "" if kMarkBytes do not hold a line. The path comes
// from the service, and may be a pipe or a device on this machine.
std::string FirstLine(const fs::path& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat info = {};
  if (fstat(file.number(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  char text[kMarkBytes];
  const ssize_t bytes = pread(file.number(), text, sizeof(text), 0);
  const std::string_view start(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  const size_t end = start.find('\n');
  return std::string(end == std::string_view::npos ? "" : start.substr(0, end));
}

absl::StatusOr<fs::path> RealPath(const TensorPath& named) {
  RETURN_IF_ERROR(CheckPath(named.path));
  std::error_code error;
  const fs::path path = fs::absolute(named.path, error);
  fs::path real = error ? path : fs::canonical(path, error);
  if (error == std::errc::no_such_file_or_directory) {
    ASSIGN_OR_RETURN(const OutputPlace place, FindOutput(path.string()));
    const fs::path target = place.path;
    real = fs::canonical(target.parent_path(), error) / target.filename();
  }
  if (error) return NotSeen(absl::StrCat(named.path, ": ", error.message()));
  return real;
}

// A path travels in a string of protobuf, which must be UTF-8.
bool IsUtf8(const std::string& text) {
  using nlohmann::json;
  const auto dump = [&](json::error_handler_t handler) {
    return json(text).dump(-1, ' ', false, handler);
  };
  return dump(json::error_handler_t::ignore) == dump(json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<SeenFolder> FindFolder(const std::shared_ptr<grpc::Channel>& channel,
                                      const DataRootOptions& options) {
  ASSIGN_OR_RETURN(const v1::GetDataRootResponse root,
                   RequestDataRoot(channel, {.outage_timeout = options.outage_timeout,
                                             .deadline = options.deadline}));
  const std::string seen = options.path.empty() ? root.path() : options.path;
  if (root.mark().empty() || FirstLine(fs::path(seen) / root.mark_file()) != root.mark()) {
    return NotSeen(absl::StrCat(seen, ": is not the service's data root: the mark ",
                                root.mark_file(), " is missing or differs"));
  }
  if (root.workers() == 0 && !options.await_workers) {
    return NotSeen("no worker of the service sees its data root");
  }
  std::error_code error;
  const fs::path folder = fs::canonical(fs::path(seen) / root.folder(), error);
  if (error) {
    return NotSeen(absl::StrCat(seen, "/", root.folder(),
                                ": the caller's folder of the data root: ", error.message()));
  }
  return SeenFolder{folder.string(), (fs::path(seen) / root.mark_file()).string()};
}

absl::StatusOr<std::vector<v1::TensorFile>> NameFiles(const std::shared_ptr<grpc::Channel>& channel,
                                                      const std::vector<TensorPath>& tensors,
                                                      const DataRootOptions& options) {
  ASSIGN_OR_RETURN(const SeenFolder found, FindFolder(channel, options));
  const fs::path folder = found.path;
  std::vector<v1::TensorFile> files;
  for (const TensorPath& named : tensors) {
    ASSIGN_OR_RETURN(const fs::path real, RealPath(named));
    const fs::path beneath = real.lexically_relative(folder);
    if (beneath.empty() || *beneath.begin() == "..") {
      return NotSeen(absl::StrCat(named.path, ": does not lie beneath ", folder.string(),
                                  ", the caller's folder of the service's data root"));
    }
    const std::string path = beneath.generic_string();
    if (!IsUtf8(path)) {
      return NotSeen(absl::StrCat(named.path, ": is not UTF-8"));
    }
    v1::TensorFile& file = files.emplace_back();
    file.set_tensor(named.tensor);
    file.set_path(path);
  }
  return files;
}

bool MaySend(const absl::Status& failure) {
  return std::ranges::any_of(
      std::initializer_list<const wire::Reason*>{
          &wire::reason::kNoDataRoot, &wire::reason::kDataRootGone, &wire::reason::kFilePath,
          &wire::reason::kFileNotFound, &wire::reason::kFileNotPermitted,
          &wire::reason::kFileMisshapen},
      [&](const wire::Reason* reason) { return wire::HasReason(failure, *reason); });
}

absl::StatusOr<v1::Report> AttendInFiles(const std::string& server, const JobSpec& spec,
                                         const std::vector<v1::TensorFile>& files,
                                         const JobOptions& options) {
  RETURN_IF_ERROR(Validate(spec));
  const AttendInputs inputs{.spec = spec};
  JobRequest request = InFiles(RequestOf(inputs, AttendOutputs{}), files);
  request.tensors.outputs.clear();
  return CallJob(server, request, options);
}

}  // namespace hilbert_ring::client

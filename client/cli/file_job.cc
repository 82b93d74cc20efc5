#include "client/cli/file_job.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/failure.h"
#include "client/cli/job_run.h"
#include "client/cpp/service.h"
#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::cli {
namespace {

using client::NpyWriter;

// Identity and time of a file, to detect a rewrite.
struct FileVersion {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t modified = 0;  // nanoseconds

  bool operator==(const FileVersion&) const = default;
};

std::optional<FileVersion> VersionOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  return FileVersion{.device = info.st_dev,
                     .inode = info.st_ino,
                     .modified = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

// Refreshes the folder's entries, because network file systems cache missing names.
void LookAgain(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  struct statx info = {};
  statx(AT_FDCWD, folder.empty() ? "." : folder.c_str(), AT_STATX_FORCE_SYNC, STATX_MTIME, &info);
}

absl::Status NotWritten(const std::string& why) {
  return absl::DataLossError(
      absl::StrCat(why, ", though the service reports that the job is done"));
}

// DATA_LOSS, with the path: the file is missing, unchanged, or has another array.
absl::Status CheckWritten(const JobOutput& output, const std::optional<FileVersion>& before) {
  LookAgain(output.path);
  const absl::StatusOr<client::NpyFile> there = client::NpyFile::Open(output.path);
  if (!there.ok()) return NotWritten(std::string(there.status().message()));
  if (VersionOf(output.path) == before) {
    return NotWritten(absl::StrCat(output.path, ": was not written"));
  }
  if (there->shape() != output.shape || there->fortran_order() ||
      !wire::MayHold(there->type(), output.dtype)) {
    return NotWritten(absl::StrCat(output.path, ": is ", wire::FormatShape(there->shape()), " of ",
                                   wire::NpyTypeName(there->type()), ", expected ",
                                   wire::FormatShape(output.shape)));
  }
  return absl::OkStatus();
}

bool HasDataRoot(const absl::Status& failure) {
  return wire::HasReason(failure, wire::reason::kDataRootGone) ||
         (absl::IsFailedPrecondition(failure) &&
          !wire::HasReason(failure, wire::reason::kNoDataRoot));
}

// Returns the tensors as files of the service's data root; empty: send them. With `auto` they are
// also sent if the service is away. Tensors outside of its data root are sent with a warning.
absl::StatusOr<std::vector<v1::TensorFile>> NameTensors(const GlobalOptions& global,
                                                        const FileJob& job, absl::Time begun) {
  if (job.reference.by_reference == "never") return std::vector<v1::TensorFile>();
  const bool always = job.reference.by_reference == "always";
  if (!job.paths.ok() && always) return job.paths.status();
  if (!job.paths.ok()) return std::vector<v1::TensorFile>();
  // The later call of a job with sent tensors waits for a service that is away.
  const absl::Duration outage = always ? OutageOf(job.call) : absl::ZeroDuration();
  auto files = client::NameFiles(client::Connect(global.server, global.access), *job.paths,
                                 {.path = job.reference.data_root,
                                  .outage_timeout = outage,
                                  .deadline = DeadlineLeft(job.call, begun),
                                  .await_workers = always});
  if (files.ok() || always) return files;
  if (HasDataRoot(files.status())) {
    PrintWarning(global, absl::StrCat("tensors are sent, since their files cannot pass by path: ",
                                      files.status().message()));
  }
  return std::vector<v1::TensorFile>();
}

// Returns whether the same command sends the tensors after this failure by path.
bool SendsAfter(const ReferenceFlags& reference, const absl::Status& failure) {
  return reference.by_reference == "auto" && client::MaySend(failure);
}

// Runs the job by path with `files`; without them sends the tensors. Returns the exit code;
// nothing: send the tensors now. attempts: adds its own.
std::optional<int> RunOnce(const GlobalOptions& global, const FileJob& job, absl::Time begun,
                           const std::vector<v1::TensorFile>& files, SideFiles& side,
                           int& attempts) {
  const bool by_reference = !files.empty();
  absl::StatusOr<OutputFiles> outputs =
      OutputFiles::Create(job.outputs, by_reference ? Route::kByPath : Route::kSent);
  if (!outputs.ok()) return BadInput(global, outputs.status());
  std::vector<std::optional<FileVersion>> before;
  for (const JobOutput& output : job.outputs) before.push_back(VersionOf(output.path));
  // By path the service checks the inputs and reports changed ones.
  const auto check_intact = [&] {
    if (!by_reference) RETURN_IF_ERROR(job.intact());
    return outputs->CheckIntact();
  };
  JobTeller teller(global);
  client::JobOptions options =
      OptionsOf(global, job.call, begun, teller, [&] { return check_intact().ok(); });
  if (by_reference) {
    options.final = [&](const absl::Status& failure) { return SendsAfter(job.reference, failure); };
  }
  absl::StatusOr<v1::Report> report = job.run(files, *outputs, options);
  for (size_t i = 0; by_reference && i < job.outputs.size() && report.ok(); ++i) {
    if (!job.outputs[i].by_workers) continue;
    if (absl::Status status = CheckWritten(job.outputs[i], before[i]); !status.ok()) {
      report = std::move(status);
    }
  }
  attempts += teller.attempts();
  if (absl::Status intact = check_intact(); !intact.ok()) return ServiceFailed(global, intact);
  if (by_reference && SendsAfter(job.reference, report.status())) {
    PrintWarning(global, absl::StrCat("tensors are sent, since the service cannot use the files: ",
                                      report.status().message()));
    return std::nullopt;
  }
  if (!report.ok()) return ServiceFailed(global, report.status());
  if (absl::Status status = outputs->Commit(); !status.ok()) return ServiceFailed(global, status);
  job.warn(*report);
  return EndJob(global, side, *report,
                {.complete = job.outputs.front().path,
                 .what = job.what,
                 .attempts = attempts,
                 .written = {job.call.report, job.call.trace}});
}

}  // namespace

std::vector<JobOutput> OutputsOf(const client::JobFiles& inputs, const std::string& out,
                                 const std::string& lse) {
  const JobSpec& spec = inputs.job.spec;
  std::vector<JobOutput> outputs = {{.path = out,
                                     .dtype = spec.dtype,
                                     .type = client::OutputType(spec, inputs.q.type()),
                                     .shape = client::TensorShape(spec, v1::TENSOR_OUT)}};
  if (!lse.empty()) {
    outputs.push_back({.path = lse, .shape = client::TensorShape(spec, v1::TENSOR_LSE)});
  }
  return outputs;
}

absl::StatusOr<OutputFiles> OutputFiles::Create(const std::vector<JobOutput>& outputs,
                                                Route route) {
  OutputFiles files;
  for (const JobOutput& output : outputs) {
    std::optional<NpyWriter>& file = files.files_.emplace_back();
    if (route == Route::kByPath && output.by_workers) continue;
    ASSIGN_OR_RETURN(file, NpyWriter::Create(output.path, output.type, output.shape));
  }
  return files;
}

std::span<std::byte> OutputFiles::data(size_t output) const {
  if (output >= files_.size() || !files_[output]) return {};
  return files_[output]->data();
}

absl::Status OutputFiles::CheckIntact() const {
  for (const std::optional<NpyWriter>& file : files_) {
    if (file) RETURN_IF_ERROR(file->CheckIntact());
  }
  return absl::OkStatus();
}

absl::Status OutputFiles::Commit() {
  for (std::optional<NpyWriter>& file : files_) {
    if (file) RETURN_IF_ERROR(file->Sync());
  }
  for (std::optional<NpyWriter>& file : files_) {
    if (file) RETURN_IF_ERROR(file->Commit());
  }
  return absl::OkStatus();
}

int RunFileJob(const GlobalOptions& global, const FileJob& job, absl::Time begun) {
  const auto files = NameTensors(global, job, begun);
  if (!files.ok()) return ServiceFailed(global, files.status());
  absl::StatusOr<SideFiles> side = CreateSideFiles(job.call);
  if (!side.ok()) return BadInput(global, side.status());
  int attempts = 0;
  const std::optional<int> ended = RunOnce(global, job, begun, *files, *side, attempts);
  return ended ? *ended : *RunOnce(global, job, begun, {}, *side, attempts);
}

}  // namespace hilbert_ring::cli

#include "server/job/job_files.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

absl::Status StatusOf(absl::Status status) { return status; }
template <typename Value>
absl::Status StatusOf(const absl::StatusOr<Value>& value) {
  return value.status();
}

// For a step of a job.
Patience PatienceOf(const FilePatience& patience, const std::string& what) {
  return {.what = absl::StrCat("--data-root: ", what),
          .reason = wire::reason::kDataRootGone,
          .limit = patience.limit,
          .flag = "--stall-timeout",
          .caller = patience.caller,
          .why_leave = [&client = patience.client] { return client.why(); }};
}

// For one that ends though the client has gone.
Patience PatienceToRemove(const FilePatience& patience) {
  return {.what = "--data-root: removing outputs",
          .reason = wire::reason::kDataRootGone,
          .limit = JobFiles::kRemoveLimit,
          .caller = patience.caller};
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobFiles>> JobFiles::Open(std::shared_ptr<DataRoot> root,
                                                         const Caller& caller, const v1::Open& open,
                                                         const JobWork& work,
                                                         const FilePatience& patience) {
  if (root == nullptr) {
    return wire::ErrorOf(wire::reason::kNoDataRoot,
                         "files: the service takes none, for it has no --data-root");
  }
  ASSIGN_OR_RETURN(auto files,
                   patience.steps.Run<absl::StatusOr<std::shared_ptr<NamedFiles>>>(
                       PatienceOf(patience, "opening files"),
                       [root = std::move(root), caller, open, arrays = FileArraysOf(work)] {
                         return NamedFiles::Open(root, caller, open, arrays);
                       }));
  return std::unique_ptr<JobFiles>(new JobFiles(std::move(files), patience));
}

JobFiles::~JobFiles() {
  const Clock::duration limit = left_.ok() ? kRemoveLimit : Clock::duration(0);
  patience_.steps.Destroy(std::move(files_), limit);
}

// After a step that was left nothing else is done: it may still go on.
template <typename Result>
Result JobFiles::Step(const Patience& patience, std::function<Result(NamedFiles&)> step) {
  RETURN_IF_ERROR(left_);
  bool returned = false;
  Result result = patience_.steps.Run<Result>(
      patience, [files = files_, step = std::move(step)] { return step(*files); }, &returned);
  if (!returned) left_ = StatusOf(result);
  return result;
}

absl::Status JobFiles::BeginExecution() {
  return Step<absl::Status>(PatienceOf(patience_, "making outputs"),
                            [](NamedFiles& files) { return files.BeginExecution(); });
}

absl::Status JobFiles::ReadChunks(v1::Tensor tensor, const Visit& visit) {
  const int64_t rows = files_->RowsOf(tensor);
  for (int64_t first = 0; first < rows;) {
    ASSIGN_OR_RETURN(const FilePiece piece,
                     Step<absl::StatusOr<FilePiece>>(
                         PatienceOf(patience_, "reading coordinates"),
                         [=](NamedFiles& files) { return files.ReadPiece(tensor, first); }));
    RETURN_IF_ERROR(visit(piece.chunk, wire::Payload(piece.payload)));
    first += piece.chunk.rows();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> JobFiles::ReadOutput(v1::Tensor tensor, int64_t row) {
  return Step<absl::StatusOr<std::string>>(
      PatienceOf(patience_, "reading outputs"),
      [=](NamedFiles& files) { return files.ReadOutput(tensor, row); });
}

void JobFiles::GiveUp() {
  absl::Status removed = Step<absl::Status>(PatienceToRemove(patience_), [](NamedFiles& files) {
    files.GiveUp();
    return absl::OkStatus();
  });
  removed.IgnoreError();  // the next execution has it
}

absl::Status JobFiles::Commit(const JobStop& stop) {
  Patience patience = PatienceOf(patience_, "bringing outputs to the disk");
  patience.limit = kCommitLimit;
  patience.flag.clear();
  // Once outputs get their names, a moment more is waited for the last of them.
  Deadline leave = Deadline::max();
  patience.why_leave = [&stop, &leave, files = files_]() -> absl::Status {
    absl::Status why = stop.why();
    if (why.ok() || files->Abandon()) return why;
    leave = std::min(leave, Clock::now() + kRemoveLimit);
    return Clock::now() < leave ? absl::OkStatus() : why;
  };
  absl::Status status = Step<absl::Status>(
      patience, [token = stop.token()](NamedFiles& files) { return files.Commit(token); });
  if (absl::IsCancelled(status) && files_->Abandon() && !stop.why().ok()) return stop.why();
  if (left_.ok() || files_->Abandon()) return status;
  return wire::WithReason(
      absl::Status(status.code(),
                   absl::StrCat(status.message(), "; outputs may have their names, or get them")),
      wire::ReasonOf(status));
}

}  // namespace hilbert_ring::server

// The files that a job names (named_files.h), for its thread: each step is left when the file
// system does not answer, or the client has gone.
//
//   ASSIGN_OR_RETURN(auto files, JobFiles::Open(root, caller, open, work, patience));
//   files->BeginExecution();
//   files->AddTo(run_open);
//   files->Commit(stop);     // every worker is done: the outputs get their names
//   files->GiveUp();     // or they are removed
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/access/caller.h"
#include "server/files/data_root.h"
#include "server/job/job_work.h"
#include "server/job/named_files.h"
#include "server/process/file_steps.h"
#include "server/process/job_stop.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

struct FilePatience {
  FileSteps& steps;
  const JobStop& client;
  std::string caller;               // Caller::turns
  std::chrono::milliseconds limit;  // of a step (--stall-timeout)
};

// Errors of each call besides its own: DATA_ROOT_GONE where there is no answer; the client's stop;
// NoThreads. After one of these all calls fail with it.
class JobFiles {
 public:
  // Within which outputs are brought to the disk and get their names.
  static constexpr std::chrono::minutes kCommitLimit{10};
  // Within which outputs that are given up are removed, or, after a stop, those of which one has
  // its name get theirs; then that is left.
  static constexpr std::chrono::seconds kRemoveLimit{5};

  // Before admission. root: null where there is none (NO_DATA_ROOT). Errors of NamedFiles::Open.
  // What the patience names outlives the files.
  static absl::StatusOr<std::unique_ptr<JobFiles>> Open(std::shared_ptr<DataRoot> root,
                                                        const Caller& caller, const v1::Open& open,
                                                        const JobWork& work,
                                                        const FilePatience& patience);
  // Removes what was not committed.
  ~JobFiles();
  JobFiles(const JobFiles&) = delete;
  JobFiles& operator=(const JobFiles&) = delete;

  // As of NamedFiles.
  absl::Status BeginExecution();
  void AddTo(v1::RunOpen& open) const { files_->AddTo(open); }
  bool Writes(v1::Tensor tensor) const { return files_->Writes(tensor); }
  absl::StatusOr<std::string> ReadOutput(v1::Tensor tensor, int64_t row);
  void GiveUp();
  int64_t output_bytes() const { return files_->output_bytes(); }

  // Chunks of a tensor that this process reads itself: COORDS, TILE_COORDS. Errors of
  // NamedFiles::ReadPiece, and those of `visit`.
  using Visit = std::function<absl::Status(const v1::Chunk& chunk, const wire::Payload& payload)>;
  absl::Status ReadChunks(v1::Tensor tensor, const Visit& visit);

  // Errors of NamedFiles::Commit; the stop's reason: then no output has its name. Where the file
  // system answers no more while they get them, some may have theirs, and the error says so.
  absl::Status Commit(const JobStop& stop);

 private:
  JobFiles(std::shared_ptr<NamedFiles> files, const FilePatience& patience)
      : files_(std::move(files)), patience_(patience) {}
  template <typename Result>
  Result Step(const Patience& patience, std::function<Result(NamedFiles&)> step);

  std::shared_ptr<NamedFiles> files_;
  const FilePatience patience_;
  absl::Status left_;  // why a step was left
};

}  // namespace hilbert_ring::server

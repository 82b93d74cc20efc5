// The files that a job names (named_files.h), for its thread. A mount that hangs holds the job;
// steps that are made while the job has workers wait for it no longer than the limit.
//
//   ASSIGN_OR_RETURN(auto files, JobFiles::Open(root, caller, open, work, threads, limit));
//   files->BeginExecution();
//   files->AddTo(run_open);
//   files->Commit(stop);     // every worker is done: the outputs get their names
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
#include "server/process/job_stop.h"
#include "server/process/kept_threads.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

class JobFiles {
 public:
  // Before admission. root: null where there is none (NO_DATA_ROOT). limit: of a step, see below
  // (--stall-timeout). Errors of NamedFiles::Open. Root and threads outlive the files.
  static absl::StatusOr<std::unique_ptr<JobFiles>> Open(DataRoot* root, const Caller& caller,
                                                        const v1::Open& open, const JobWork& work,
                                                        KeptThreads& threads,
                                                        std::chrono::milliseconds limit);

  // As of NamedFiles. Steps: errors besides are DATA_ROOT_GONE where there is no answer within the
  // limit; after that all steps fail with it.
  absl::Status BeginExecution();  // a step
  void AddTo(v1::RunOpen& open) const { files_->AddTo(open); }
  bool Writes(v1::Tensor tensor) const { return files_->Writes(tensor); }
  absl::StatusOr<std::string> ReadOutput(v1::Tensor tensor, int64_t row);  // a step
  int64_t output_bytes() const { return files_->output_bytes(); }
  absl::Status Commit(const JobStop& stop) { return files_->Commit(stop); }

  // Chunks of a tensor that this process reads itself: COORDS, TILE_COORDS. Each is a step. Errors
  // of NamedFiles::ReadPiece, and those of `visit`.
  using Visit = std::function<absl::Status(const v1::Chunk& chunk, const wire::Payload& payload)>;
  absl::Status ReadChunks(v1::Tensor tensor, const Visit& visit);

 private:
  JobFiles(std::shared_ptr<NamedFiles> files, KeptThreads& threads, std::chrono::milliseconds limit)
      : files_(std::move(files)), threads_(threads), limit_(limit) {}
  template <typename Result>
  Result Step(std::function<Result(NamedFiles&)> step);

  const std::shared_ptr<NamedFiles> files_;  // shared with a step that has no answer
  KeptThreads& threads_;
  const std::chrono::milliseconds limit_;
  absl::Status gone_;  // of that step
};

}  // namespace hilbert_ring::server

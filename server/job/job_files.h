// The files of a job that names them instead of sending tensors (Open.files), at the coordinator,
// which reads coordinates alone.
//
//   ASSIGN_OR_RETURN(auto files, JobFiles::Open(root, caller, open, work));  // before admission
//   files->BeginExecution();            // inputs are as they were; outputs are there, empty
//   files->AddTo(run_open);             // for each worker, which reads and writes its own rows
//   files->Commit(stop);                // every worker is done: the outputs get their names
//   files->GiveUp();                    // or they are removed
//
// Each execution has output files of its own: a worker of one that was given up may still write,
// but not into what gets the name.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/access/caller.h"
#include "server/files/data_root.h"
#include "server/files/output_file.h"
#include "server/job/job_work.h"
#include "server/process/job_stop.h"
#include "wire/npy_header.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

// The caller's folder beneath the root; empty: the root itself. FILE_PATH for a caller whose name
// is no folder's.
absl::StatusOr<std::string> FolderOf(const Caller& caller);

class JobFiles {
 public:
  // root: null where there is none (NO_DATA_ROOT). INVALID_OPEN: a tensor that the job does not
  // have, is named twice, or is missing; FILE_MISSHAPEN; errors of DataRoot::Reach, OpenFile and
  // CheckReplaceable. The work outlives the files.
  static absl::StatusOr<std::unique_ptr<JobFiles>> Open(DataRoot* root, const Caller& caller,
                                                        const v1::Open& open, const JobWork& work);

  // FILE_CHANGED, and errors of OutputFile::Create.
  absl::Status BeginExecution();

  void AddTo(v1::RunOpen& open) const;

  // Chunks of a tensor that this process reads itself: COORDS, TILE_COORDS. Errors of ReadRows,
  // BAD_COORDINATES, and those of `visit`.
  using Visit = std::function<absl::Status(const v1::Chunk& chunk, const wire::Payload& payload)>;
  absl::Status ReadChunks(v1::Tensor tensor, const Visit& visit) const;

  // Whether it is an output in a file.
  bool Writes(v1::Tensor tensor) const;

  // Rows of such an output, before it is committed.
  absl::Status ReadOutput(v1::Tensor tensor, int64_t row, std::string& bytes) const;

  // FILE_CHANGED where an input was written to meanwhile; errors of OutputFile::Commit; the stop's
  // reason: then no output has its name.
  absl::Status Commit(const JobStop& stop);
  void GiveUp() { outputs_.clear(); }

  // Of all outputs: what the workers write.
  int64_t output_bytes() const;

 private:
  struct Input {
    std::string path;  // beneath the root
    Descriptor file;
    FileVersion version;
    int64_t offset = 0;  // of row 0
    wire::NpyType type = wire::NpyType::kFloat32;
  };
  struct Wanted {  // of an output
    std::string path, header;
    int64_t row_bytes = 0, rows = 0;
  };

  JobFiles(DataRoot& root, const JobWork& work) : root_(root), work_(work) {}
  absl::Status Take(const v1::TensorFile& file, const std::string& path, int root);
  absl::Status TakeInput(const v1::TensorFile& file, const std::string& path, int root);
  absl::Status TakeOutput(const v1::TensorFile& file, const std::string& path, int root);
  absl::Status CheckAllNamed(const v1::Open& open) const;
  absl::Status CheckDistinct(int root) const;
  absl::Status CheckUnchanged() const;

  DataRoot& root_;
  const JobWork& work_;
  std::map<v1::Tensor, Input> inputs_;
  std::map<v1::Tensor, Wanted> wanted_;
  std::map<v1::Tensor, OutputFile> outputs_;  // of the execution
};

}  // namespace hilbert_ring::server

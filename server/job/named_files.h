// The files of a job that names them instead of sending tensors (Open.files), at the coordinator.
// A step of job_files.h may outlive the job, and so this owns all that it uses but the root.
//
// Each execution has output files of its own: a worker of one that was given up may still write,
// but not into what gets the name.
#pragma once

#include <cstdint>
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

namespace hilbert_ring::server {

// The caller's folder beneath the root; empty: the root itself. FILE_PATH for a caller whose name
// is no folder's.
absl::StatusOr<std::string> FolderOf(const Caller& caller);

// The tensors of a job as arrays in files: by value, for a step may outlive its job.
struct FileArrays {
  std::map<v1::Tensor, JobArray> of;  // those that the job may have in files
  RowSizes rows;
};
FileArrays FileArraysOf(const JobWork& work);

// Rows of a tensor as a client would send them.
struct FilePiece {
  v1::Chunk chunk;
  std::string payload;
};

// Used by one thread at a time.
class NamedFiles {
 public:
  // INVALID_OPEN: a tensor that the job does not have, is named twice, or is missing;
  // FILE_MISSHAPEN; errors of DataRoot::Reach, OpenFile and CheckReplaceable.
  static absl::StatusOr<std::shared_ptr<NamedFiles>> Open(DataRoot& root, const Caller& caller,
                                                          const v1::Open& open, FileArrays arrays);

  // Inputs are as they were; outputs are there, empty. FILE_CHANGED, and errors of
  // OutputFile::Create.
  absl::Status BeginExecution();

  // For each worker, which reads and writes its own rows.
  void AddTo(v1::RunOpen& open) const;

  // Of COORDS and TILE_COORDS, which this process reads itself: rows from this one on, as many as
  // go into a chunk. Errors of ReadRows, BAD_COORDINATES.
  absl::StatusOr<FilePiece> ReadPiece(v1::Tensor tensor, int64_t first_row) const;
  int64_t RowsOf(v1::Tensor tensor) const { return arrays_.of.at(tensor).shape.front(); }

  // Whether it is an output in a file.
  bool Writes(v1::Tensor tensor) const { return wanted_.contains(tensor); }

  // A row of such an output, before it is committed.
  absl::StatusOr<std::string> ReadOutput(v1::Tensor tensor, int64_t row) const;

  // Every worker is done: the outputs get their names. FILE_CHANGED where an input was written to
  // meanwhile; errors of OutputFile::Commit; the stop's reason: then no output has its name.
  absl::Status Commit(const JobStop& stop);

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

  NamedFiles(DataRoot& root, FileArrays arrays) : root_(root), arrays_(std::move(arrays)) {}
  JobArray ArrayOf(v1::Tensor tensor) const;
  absl::Status Take(const v1::TensorFile& file, const std::string& path, int root);
  absl::Status TakeInput(const v1::TensorFile& file, const std::string& path, int root);
  absl::Status TakeOutput(const v1::TensorFile& file, const std::string& path, int root);
  absl::Status CheckAllNamed(const v1::Open& open) const;
  absl::Status CheckDistinct(int root) const;
  absl::Status CheckUnchanged() const;

  DataRoot& root_;
  const FileArrays arrays_;
  std::map<v1::Tensor, Input> inputs_;
  std::map<v1::Tensor, Wanted> wanted_;
  std::map<v1::Tensor, OutputFile> outputs_;  // of the execution
};

}  // namespace hilbert_ring::server

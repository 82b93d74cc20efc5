// Files of a job that passes its tensors by path (Open.files). Workers read and write them. A mount
// that hangs holds the job's thread, which has no workers then. Each execution has its own output
// files: a worker of an earlier one may still write to its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/access/caller.h"
#include "server/files/data_root.h"
#include "server/files/output_file.h"
#include "server/job/job_rows.h"
#include "server/job/job_work.h"
#include "server/process/job_stop.h"
#include "wire/npy_header.h"

namespace hilbert_ring::server {

// The caller's folder beneath the root, or empty for the root itself. FILE_PATH.
absl::StatusOr<std::string> FolderOf(const Caller& caller);

class NamedFiles : public JobRows {  // used by one thread at a time
 public:
  // root: null without --data-root (NO_DATA_ROOT). INVALID_OPEN for a tensor that is unknown,
  // missing or passed twice; FILE_MISSHAPEN; errors of DataRoot::Reach, OpenFile and
  // CheckReplaceable. Root and work outlive the files.
  static absl::StatusOr<std::unique_ptr<NamedFiles>> Open(DataRoot* root, const Caller& caller,
                                                          const v1::Open& open,
                                                          const JobWork& work);

  bool Reaches(const Member& worker) const override { return worker.sees_data_root; }
  absl::Status CheckReachable(const Members& live) const override;

  // Checks inputs, makes empty outputs, and reads COORDS and TILE_COORDS. FILE_CHANGED, errors of
  // OutputFile::Create and ReadRows, BAD_COORDINATES.
  absl::Status Prepare(const TakeRows& take) override;

  void AddTo(v1::RunOpen& open) const override;

  std::optional<int64_t> BytesByWorkers() const override;
  absl::Status ReadBack(RowCheck& check,
                        const std::function<std::shared_ptr<const Member>(int64_t)>& of) override;

  // FILE_CHANGED if an input was written to; errors of OutputFile::Commit; the stop's reason,
  // before an output gets its name.
  absl::Status Commit(const JobStop& stop) override;

 private:
  struct Input {
    std::string path;  // beneath the root
    Descriptor file;
    FileVersion version;
    int64_t offset = 0;  // of row 0
    wire::NpyType type = wire::NpyType::kFloat32;
  };
  struct Output {
    std::string path;
    bool raw = false;  // without a header
    int64_t row_bytes = 0, rows = 0;
    std::optional<OutputFile> file;  // of the execution
  };

  NamedFiles(DataRoot& root, const JobWork& work) : root_(root), work_(work) {}
  absl::Status Take(const v1::TensorFile& file, const std::string& path, int root);
  absl::Status TakeInput(const v1::TensorFile& file, const JobArray& array, const std::string& path,
                         int root);
  absl::Status TakeOutput(const v1::TensorFile& file, const JobArray& array,
                          const std::string& path, int root);
  absl::Status CheckAllNamed() const;
  absl::Status CheckDistinct(int root) const;
  absl::Status CheckUnchanged() const;
  std::string HeaderOf(v1::Tensor output) const;
  absl::Status MakeOutputs();
  absl::StatusOr<std::string> ReadChunk(v1::Tensor tensor, int64_t first_row,
                                        v1::Chunk& chunk) const;

  DataRoot& root_;
  const JobWork& work_;
  bool taken_ = false;  // this process has read its rows
  std::map<v1::Tensor, Input> inputs_;
  std::map<v1::Tensor, Output> outputs_;
};

}  // namespace hilbert_ring::server

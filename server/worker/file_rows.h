// Rows in files (RunOpen.files), read straight to their places in the shard and written from there.
// Inputs are read by blocks in the order of the shard, so that compute begins with the first, and
// within a block in the order of the file. Rows that an order scatters have no neighbours in a
// block. They are all read, and later written, in the order of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"
#include "engine/run/shard_store.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/files/row_transfer.h"
#include "server/worker/run_course.h"
#include "server/worker/run_work.h"
#include "server/worker/shard_ways.h"

namespace hilbert_ring::server {

struct RunFiles {
  std::vector<Descriptor> opened;
  std::map<TensorKind, FileRows> inputs, outputs;
};

// Opens the files of RunOpen. root: this worker's --data-root, or empty. Errors: DATA_ROOT_GONE,
// errors of OpenFile, FILE_CHANGED for another file than the coordinator's.
absl::StatusOr<RunFiles> OpenRunFiles(const std::string& root, const v1::RunOpen& open,
                                      const RunWork& work);

// Local rows [begin, end) of a tensor, or of their tiles, in the order of a file of the whole
// tensor. tokens: of the shard, if the job has an ordering.
std::vector<RowPiece> PiecesOf(const RunWork& work, std::span<const int64_t> tokens,
                               TensorKind tensor, int64_t begin, int64_t end);

class FileWay final : public ShardWay {
 public:
  // References outlive it.
  FileWay(const RunFiles& files, const RunWork& work, ShardStore& store, RunCourse& course)
      : files_(files), work_(work), store_(store), course_(course) {}

  absl::StatusOr<int64_t> Take(const v1::RunRequest& message,
                               const wire::Payload& payload) override;
  absl::Status FinishInput() override;
  absl::Status Put(int64_t rows_final, RunReplies& replies, grpc::WriteOptions options) override;
  absl::Status FinishOutput(RunReplies& replies) override;

 private:
  struct Block {  // rows of the shard that are read together
    int64_t begin = 0, end = 0;
    std::map<TensorKind, std::vector<RowPiece>> pieces;
  };
  bool IsInOrder(TensorKind tensor) const;
  Block Prepare(int64_t begin, int64_t end) const;
  absl::Status Read(Block& block);
  absl::Status ReadPieces(const FileRows& file, const std::vector<RowPiece>& pieces,
                          std::byte* memory);
  absl::Status Write(TensorKind tensor, const FileRows& file, int64_t begin, int64_t end);
  absl::Status WritePieces(TensorKind tensor, const FileRows& file,
                           const std::vector<RowPiece>& pieces, const std::byte* memory);
  void CountNotFinite(TensorKind tensor, const std::vector<RowPiece>& pieces,
                      const std::byte* memory, int64_t row_bytes);

  bool IsScattered() const;
  std::vector<RowPiece> PiecesOfPart(int64_t part) const;
  absl::Status ReadByParts();
  absl::Status WriteByParts(RunReplies& replies);

  const RunFiles& files_;
  const RunWork& work_;
  ShardStore& store_;
  RunCourse& course_;
  std::vector<std::byte> staging_in_, staging_out_;  // for a device's rows
  int64_t written_ = 0;                              // local rows
  int64_t parts_ = 0;                                // of the files, if rows are scattered
};

}  // namespace hilbert_ring::server

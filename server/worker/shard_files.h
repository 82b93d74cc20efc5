// The files of a run whose tensors are named (RunOpen.files): this worker's rows are read from them
// straight to their places in the shard, and written from there.
//
//   ASSIGN_OR_RETURN(auto files, ShardFiles::Open(root, open, work));
//   files->Use(store);
//   files->Read(there);                // there(rows): local rows [0, rows) of all inputs have come
//   files->Write(rows_final, moved);   // outputs of local rows, as they become final
//   files->Sync(moved);                // they are on the disk
//
// Rows are read in the order of the shard, so that compute begins with the first; those of a piece
// of the shard in the order of the file. One thread reads, one writes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/run/shard_store.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/files/descriptor.h"
#include "server/files/row_transfer.h"
#include "server/worker/run_work.h"

namespace hilbert_ring::server {

class ShardFiles {
 public:
  // root: of this worker's --data-root; empty: it has none. Errors: DATA_ROOT_GONE, as of OpenFile,
  // FILE_CHANGED where a file is not the one that is meant. The work outlives the files.
  static absl::StatusOr<std::unique_ptr<ShardFiles>> Open(const std::string& root,
                                                          const v1::RunOpen& open,
                                                          const RunWork& work);

  // The shard's memory, which outlives the files. Before any of what follows.
  void Use(ShardStore& store) { store_ = &store; }

  // Once the order is there. Ends with the first error of `there`. Errors of ReadRows.
  absl::Status Read(const std::function<absl::Status(int64_t rows)>& there);

  // Of local rows [0, rows_final), those that were not written before. moved: called now and then;
  // its first error ends it. Errors of WriteRows.
  absl::Status Write(int64_t rows_final, const std::function<absl::Status()>& moved);
  absl::Status Sync(const std::function<absl::Status()>& moved);

  // Any thread.
  int64_t bytes_read() const { return bytes_read_; }
  int64_t bytes_written() const { return bytes_written_; }

  // Of OUT, or of an encoder's STATES, after the last Write; the first of them by its token.
  int64_t rows_not_finite() const { return rows_not_finite_; }
  int64_t first_not_finite() const { return first_not_finite_; }

 private:
  struct File {
    Descriptor descriptor;
    FileRows rows;
  };
  struct Block {  // of the shard: rows that are read together
    int64_t begin = 0, end = 0;
    std::map<TensorKind, std::vector<RowPiece>> pieces;
  };

  explicit ShardFiles(const RunWork& work) : work_(work) {}
  absl::Status Take(int root, const v1::ShardFile& file);
  absl::StatusOr<std::vector<RowPiece>> PiecesOf(TensorKind tensor, int64_t begin,
                                                 int64_t end) const;
  absl::StatusOr<Block> Prepare(int64_t begin, int64_t end) const;
  absl::Status Read(const Block& block);
  absl::Status Write(TensorKind tensor, const File& file, int64_t begin, int64_t end);
  void CountNotFinite(TensorKind tensor, const std::vector<RowPiece>& pieces,
                      const std::byte* memory, int64_t row_bytes);

  const RunWork& work_;
  ShardStore* store_ = nullptr;
  std::map<TensorKind, File> inputs_, outputs_;
  std::vector<std::byte> read_staging_, write_staging_;  // of a device's rows
  int64_t written_ = 0;                                  // local rows
  std::atomic<int64_t> bytes_read_ = 0, bytes_written_ = 0;
  int64_t rows_not_finite_ = 0, first_not_finite_ = 0;
};

}  // namespace hilbert_ring::server

#include "server/worker/shard_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/files/open_beneath.h"
#include "wire/codec.h"
#include "wire/finite_rows.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// Of the shard, read or written between two looks at what has changed: small enough that compute
// begins soon, large enough that rows which an ordering scatters have neighbours.
constexpr int64_t kBlockBytes = 8 << 20;
// Blocks that the system is told of before they are read: 32 MiB keep a disk busy.
constexpr size_t kBlocksAhead = 4;
constexpr int64_t kSyncBytes = 64 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<ShardFiles>> ShardFiles::Open(const std::string& root,
                                                             const v1::RunOpen& open,
                                                             const RunWork& work) {
  if (root.empty()) {
    return wire::ErrorOf(wire::reason::kDataRootGone, "this worker has no --data-root");
  }
  ASSIGN_OR_RETURN(const Descriptor reached, OpenRoot(root));
  std::unique_ptr<ShardFiles> files(new ShardFiles(work));
  for (const v1::ShardFile& file : open.files()) {
    RETURN_IF_ERROR(files->Take(reached.number(), file));
  }
  for (const TensorKind kind : kInputKinds) {
    if (!work.shape().rows.Has(kind) || files->inputs_.contains(kind)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("files: ", wire::TensorName(wire::TensorOf(kind)), " is missing"));
  }
  return files;
}

absl::Status ShardFiles::Take(int root, const v1::ShardFile& file) {
  const auto kind = wire::TensorKindOf(file.tensor());
  if (!kind || !work_.shape().rows.Has(*kind) || file.offset() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("files: ", wire::TensorName(file.tensor()), " at ", file.offset()));
  }
  const bool input = IsInput(*kind);
  ASSIGN_OR_RETURN(Descriptor opened, input ? OpenFile(root, file.path(), O_RDONLY)
                                            : OpenOwnFile(root, file.path(), O_RDWR));
  ASSIGN_OR_RETURN(const FileVersion version, VersionOf(opened, file.path()));
  if (version.inode != file.inode() || version.bytes != file.bytes()) {
    return wire::ErrorOf(
        wire::reason::kFileChanged,
        absl::StrCat(file.path(), ": is another file than the coordinator has opened: inode ",
                     version.inode, " of ", version.bytes, " bytes, expected inode ", file.inode(),
                     " of ", file.bytes()));
  }
  File taken{.rows = {.descriptor = opened.number(),
                      .path = file.path(),
                      .offset = file.offset(),
                      .row_bytes = work_.shape().rows[*kind]}};
  taken.descriptor = std::move(opened);
  (input ? inputs_ : outputs_).emplace(*kind, std::move(taken));
  return absl::OkStatus();
}

// Local rows [begin, end), with their places in the file of all rows, in its order.
absl::StatusOr<std::vector<RowPiece>> ShardFiles::PiecesOf(TensorKind tensor, int64_t begin,
                                                           int64_t end) const {
  const JobShape& shape = work_.shape();
  // Outputs are queries' rows.
  const bool in_order = shape.InOrder(IsInput(tensor) ? tensor : TensorKind::kQ);
  const bool tiles = shape.slides != nullptr && IsInput(tensor);
  std::vector<RowPiece> pieces;
  if (!in_order) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t token = store_->tokens()[row];
      if (token < 0 || token >= shape.spec.tokens) {
        return absl::InternalError(
            absl::StrCat("the order has token ", token, " of ", shape.spec.tokens));
      }
      pieces.push_back({.file_row = token, .memory_row = row, .rows = 1});
    }
    InFileOrder(pieces);
    return pieces;
  }
  for (const ShardRange& range : work_.plan().shards.OfRank(work_.rank())) {
    const int64_t first = std::max(begin, range.local_begin);
    const int64_t last = std::min(end, range.local_begin + range.size());
    if (first >= last) continue;
    const int64_t slot = range.begin + first - range.local_begin;
    if (!tiles) {
      pieces.push_back({.file_row = slot, .memory_row = first, .rows = last - first});
      continue;
    }
    const SlideRows::Tiles there = shape.slides->TilesOf(slot, slot + last - first);
    for (const TileSpan& run : shape.slides->RunsOf(there.begin, there.end - there.begin)) {
      pieces.push_back({.file_row = run.first_tile,
                        .memory_row = first + run.first_token - slot,
                        .rows = run.tiles});
    }
  }
  InFileOrder(pieces);
  return pieces;
}

absl::StatusOr<ShardFiles::Block> ShardFiles::Prepare(int64_t begin, int64_t end) const {
  Block block{.begin = begin, .end = end};
  for (const auto& [tensor, file] : inputs_) {
    ASSIGN_OR_RETURN(block.pieces[tensor], PiecesOf(tensor, begin, end));
    ReadAhead(file.rows, block.pieces[tensor]);
  }
  return block;
}

absl::Status ShardFiles::Read(const Block& block) {
  for (const auto& [tensor, file] : inputs_) {
    const std::vector<RowPiece>& pieces = block.pieces.at(tensor);
    const int64_t row_bytes = file.rows.row_bytes;
    if (store_->host_memory()) {
      RETURN_IF_ERROR(ReadRows(file.rows, pieces, store_->Row(tensor, 0)));
    } else {
      read_staging_.resize(static_cast<size_t>((block.end - block.begin) * row_bytes));
      std::vector<RowPiece> staged = pieces;
      for (RowPiece& piece : staged) piece.memory_row -= block.begin;
      RETURN_IF_ERROR(ReadRows(file.rows, staged, read_staging_.data()));
      RETURN_IF_ERROR(
          store_->Write(tensor, block.begin, block.end - block.begin, read_staging_.data()));
    }
    for (const RowPiece& piece : pieces) bytes_read_ += piece.rows * row_bytes;
  }
  return absl::OkStatus();
}

absl::Status ShardFiles::Read(const std::function<absl::Status(int64_t rows)>& there) {
  int64_t of_row = 0;
  for (const auto& [tensor, file] : inputs_) of_row += file.rows.row_bytes;
  const int64_t block_rows = std::max<int64_t>(1, kBlockBytes / of_row);
  std::deque<Block> ahead;
  int64_t prepared = 0;
  for (int64_t begin = 0; begin < store_->rows(); begin += block_rows) {
    while (ahead.size() < kBlocksAhead && prepared < store_->rows()) {
      const int64_t end = std::min(prepared + block_rows, store_->rows());
      ASSIGN_OR_RETURN(Block block, Prepare(prepared, end));
      ahead.push_back(std::move(block));
      prepared = end;
    }
    RETURN_IF_ERROR(Read(ahead.front()));
    RETURN_IF_ERROR(there(ahead.front().end));
    ahead.pop_front();
  }
  return absl::OkStatus();
}

void ShardFiles::CountNotFinite(TensorKind tensor, const std::vector<RowPiece>& pieces,
                                const std::byte* memory, int64_t row_bytes) {
  if (tensor != TensorKind::kOut && tensor != TensorKind::kStates) return;
  const DataType type = tensor == TensorKind::kOut ? work_.shape().spec.dtype : DataType::kFloat32;
  for (const RowPiece& piece : pieces) {
    for (int64_t i = 0; i < piece.rows; ++i) {
      if (wire::IsFinite(type, memory + (piece.memory_row + i) * row_bytes, row_bytes)) continue;
      const int64_t token = piece.file_row + i;
      first_not_finite_ = rows_not_finite_ == 0 ? token : std::min(first_not_finite_, token);
      ++rows_not_finite_;
    }
  }
}

absl::Status ShardFiles::Write(TensorKind tensor, const File& file, int64_t begin, int64_t end) {
  ASSIGN_OR_RETURN(std::vector<RowPiece> pieces, PiecesOf(tensor, begin, end));
  const int64_t row_bytes = file.rows.row_bytes;
  const std::byte* memory = nullptr;
  if (store_->host_memory()) {
    memory = store_->Row(tensor, 0);
  } else {
    write_staging_.resize(static_cast<size_t>((end - begin) * row_bytes));
    RETURN_IF_ERROR(store_->Read(tensor, begin, end - begin, write_staging_.data()));
    for (RowPiece& piece : pieces) piece.memory_row -= begin;
    memory = write_staging_.data();
  }
  CountNotFinite(tensor, pieces, memory, row_bytes);
  RETURN_IF_ERROR(WriteRows(file.rows, pieces, memory));
  bytes_written_ += (end - begin) * row_bytes;
  return absl::OkStatus();
}

absl::Status ShardFiles::Write(int64_t rows_final, const std::function<absl::Status()>& moved) {
  int64_t of_row = 1;
  for (const auto& [tensor, file] : outputs_) of_row += file.rows.row_bytes;
  const int64_t block_rows = std::max<int64_t>(1, kBlockBytes / of_row);
  while (written_ < rows_final) {
    const int64_t end = std::min(written_ + block_rows, rows_final);
    for (const auto& [tensor, file] : outputs_) {
      RETURN_IF_ERROR(Write(tensor, file, written_, end));
    }
    written_ = end;
    RETURN_IF_ERROR(moved());
  }
  return absl::OkStatus();
}

// Piece by piece, so that a slow disk is seen to move.
absl::Status ShardFiles::Sync(const std::function<absl::Status()>& moved) {
  for (const auto& [tensor, file] : outputs_) {
    const int64_t end = file.rows.offset + work_.shape().spec.tokens * work_.shape().rows[tensor];
    for (int64_t begin = 0; begin < end; begin += kSyncBytes) {
      constexpr unsigned kAll =
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
      if (sync_file_range(file.descriptor.number(), begin, kSyncBytes, kAll) != 0 &&
          errno != ESPIPE && errno != EINVAL && errno != ENOSYS) {
        return FileError(file.rows.path, "cannot bring it to the disk", errno);
      }
      RETURN_IF_ERROR(moved());
    }
    if (fdatasync(file.descriptor.number()) != 0) {
      return FileError(file.rows.path, "cannot bring it to the disk", errno);
    }
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server

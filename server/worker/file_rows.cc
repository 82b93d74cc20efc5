#include "server/worker/file_rows.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/files/open_beneath.h"
#include "server/worker/message_rows.h"
#include "wire/codec.h"
#include "wire/finite_rows.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// A block of the shard: small enough that compute begins soon, large enough that scattered rows
// have neighbours in the file.
constexpr int64_t kBlockBytes = 8 << 20;
constexpr size_t kBlocksAhead = 4;  // read-ahead of 32 MiB, which keeps a disk busy
constexpr int64_t kSyncBytes = 64 << 20;

// An average below this is of scattered rows: the system reads and writes them one by one.
constexpr int64_t kScatteredBytes = 4096;
// Parts of the files by which scattered rows are read and written: a part's list of rows is small
// beside the shard, and the search for its rows is short beside their copies.
constexpr int64_t kMostParts = 64;
constexpr int64_t kLeastPartRows = 16384;

absl::StatusOr<Descriptor> Open(int root, const v1::ShardFile& file, bool is_input) {
  ASSIGN_OR_RETURN(Descriptor opened, is_input
                                          ? OpenFile(root, file.path(), O_RDONLY)
                                          : OpenFile(root, file.path(), O_RDWR, Owner::kService));
  ASSIGN_OR_RETURN(const FileVersion version, VersionOf(opened, file.path()));
  if (version.inode != file.inode() || version.bytes != file.bytes()) {
    return wire::ErrorOf(
        wire::reason::kFileChanged,
        absl::StrCat(file.path(), ": is another file than the coordinator has opened: inode ",
                     version.inode, " of ", version.bytes, " bytes, expected inode ", file.inode(),
                     " of ", file.bytes()));
  }
  return opened;
}

int64_t BlockRows(const std::map<TensorKind, FileRows>& files) {
  int64_t of_row = 1;
  for (const auto& [tensor, file] : files) of_row += file.row_bytes;
  return std::max<int64_t>(1, kBlockBytes / of_row);
}

}  // namespace

absl::StatusOr<RunFiles> OpenRunFiles(const std::string& root, const v1::RunOpen& open,
                                      const RunWork& work) {
  RunFiles files;
  if (open.files_size() == 0) return files;
  ASSIGN_OR_RETURN(const Descriptor reached, OpenRoot(root));
  for (const v1::ShardFile& file : open.files()) {
    const TensorKind tensor = *wire::TensorKindOf(file.tensor());
    const bool is_input = IsInput(tensor);
    ASSIGN_OR_RETURN(Descriptor opened, Open(reached.number(), file, is_input));
    (is_input ? files.inputs : files.outputs)[tensor] = {.descriptor = opened.number(),
                                                         .path = file.path(),
                                                         .offset = file.offset(),
                                                         .row_bytes = work.shape().rows[tensor]};
    files.opened.push_back(std::move(opened));
  }
  return files;
}

std::vector<RowPiece> PiecesOf(const RunWork& work, std::span<const int64_t> tokens,
                               TensorKind tensor, int64_t begin, int64_t end) {
  const JobShape& shape = work.shape();
  const Shards& shards = work.plan().ShardsOf(tensor);
  end = std::min(end, shards.Rows(work.rank()));
  std::vector<RowPiece> pieces;
  if (!shape.InOrder(IsInput(tensor) ? tensor : TensorKind::kQ)) {  // outputs as Q
    for (int64_t row = begin; row < end; ++row) {
      pieces.push_back({.file_row = tokens[row], .memory_row = row, .rows = 1});
    }
    InFileOrder(pieces);
    return pieces;
  }
  const bool tiles = shape.slides != nullptr && IsInput(tensor);
  for (const ShardRange& range : shards.OfRank(work.rank())) {
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

bool FileWay::IsInOrder(TensorKind tensor) const {
  return work_.shape().InOrder(IsInput(tensor) ? tensor : TensorKind::kQ);  // outputs as Q
}

absl::StatusOr<int64_t> FileWay::Take(const v1::RunRequest& message, const wire::Payload& payload) {
  if (message.has_order()) {
    RETURN_IF_ERROR(PlaceOrder(message.order(), payload, store_).status());
  }
  return 0;
}

FileWay::Block FileWay::Prepare(int64_t begin, int64_t end) const {
  Block block{.begin = begin, .end = end};
  for (const auto& [tensor, file] : files_.inputs) {
    block.pieces[tensor] = PiecesOf(work_, store_.tokens(), tensor, begin, end);
    ReadAhead(file, block.pieces[tensor]);
  }
  return block;
}

absl::Status FileWay::ReadPieces(const FileRows& file, const std::vector<RowPiece>& pieces,
                                 std::byte* memory) {
  RETURN_IF_ERROR(ReadRows(file, pieces, memory));
  int64_t bytes = 0;
  for (const RowPiece& piece : pieces) bytes += piece.rows * file.row_bytes;
  course_.Note([bytes](RunProgress& progress) { progress.bytes_read += bytes; });
  return absl::OkStatus();
}

absl::Status FileWay::Read(Block& block) {
  for (const auto& [tensor, file] : files_.inputs) {
    std::vector<RowPiece>& pieces = block.pieces[tensor];
    if (store_.host_memory()) {
      RETURN_IF_ERROR(ReadPieces(file, pieces, store_.Row(tensor, 0)));
      continue;
    }
    const int64_t end = std::min(block.end, store_.rows(tensor));
    if (end <= block.begin) continue;
    staging_in_.resize(static_cast<size_t>((end - block.begin) * file.row_bytes));
    for (RowPiece& piece : pieces) piece.memory_row -= block.begin;
    RETURN_IF_ERROR(ReadPieces(file, pieces, staging_in_.data()));
    RETURN_IF_ERROR(store_.Write(tensor, block.begin, end - block.begin, staging_in_.data()));
  }
  return absl::OkStatus();
}

// Looks at the first block, if it can be read elsewhere than in order: not through staging.
bool FileWay::IsScattered() const {
  for (const auto& [tensor, file] : files_.inputs) {
    if (IsInOrder(tensor) || !store_.host_memory()) continue;
    const int64_t rows = std::min(BlockRows(files_.inputs), store_.rows(tensor));
    const auto pieces = std::ssize(PiecesOf(work_, store_.tokens(), tensor, 0, rows));
    return rows * file.row_bytes < pieces * kScatteredBytes;
  }
  return false;
}

std::vector<RowPiece> FileWay::PiecesOfPart(int64_t part) const {
  const int64_t tokens = KeyTokens(work_.shape().spec);
  const int64_t begin = tokens * part / parts_;
  const int64_t end = tokens * (part + 1) / parts_;
  const std::span<const int64_t> token = store_.tokens();
  std::vector<RowPiece> pieces;
  for (int64_t row = 0; row < store_.rows(TensorKind::kK); ++row) {
    if (token[row] < begin || token[row] >= end) continue;
    pieces.push_back({.file_row = token[row], .memory_row = row, .rows = 1});
  }
  InFileOrder(pieces);
  return pieces;
}

absl::Status FileWay::ReadByParts() {
  for (int64_t part = 0; part < parts_; ++part) {
    const std::vector<RowPiece> scattered = PiecesOfPart(part);
    for (const auto& [tensor, file] : files_.inputs) {
      if (!IsInOrder(tensor)) ReadAhead(file, scattered);
    }
    for (const auto& [tensor, file] : files_.inputs) {
      const int64_t rows = store_.rows(tensor);
      RETURN_IF_ERROR(ReadPieces(
          file,
          IsInOrder(tensor)
              ? PiecesOf(work_, {}, tensor, rows * part / parts_, rows * (part + 1) / parts_)
              : scattered,
          store_.Row(tensor, 0)));
    }
    RETURN_IF_ERROR(course_.failure());
  }
  return absl::OkStatus();
}

absl::Status FileWay::FinishInput() {
  if (IsScattered()) {
    const int64_t tokens = KeyTokens(work_.shape().spec);
    parts_ = std::clamp(tokens / kLeastPartRows, int64_t{1}, kMostParts);
    return ReadByParts();
  }
  const int64_t block_rows = BlockRows(files_.inputs);
  std::deque<Block> ahead;
  int64_t prepared = 0;
  for (int64_t begin = 0; begin < store_.rows(); begin += block_rows) {
    while (ahead.size() < kBlocksAhead && prepared < store_.rows()) {
      const int64_t end = std::min(prepared + block_rows, store_.rows());
      ahead.push_back(Prepare(prepared, end));
      prepared = end;
    }
    RETURN_IF_ERROR(Read(ahead.front()));
    RETURN_IF_ERROR(course_.failure());
    if (ahead.front().end < store_.rows()) course_.AddRows(ahead.front().end);
    ahead.pop_front();
  }
  return absl::OkStatus();
}

void FileWay::CountNotFinite(TensorKind tensor, const std::vector<RowPiece>& pieces,
                             const std::byte* memory, int64_t row_bytes) {
  if (tensor != TensorKind::kOut && tensor != TensorKind::kStates) return;
  const DataType type = tensor == TensorKind::kOut ? work_.shape().spec.dtype : DataType::kFloat32;
  for (const RowPiece& piece : pieces) {
    for (int64_t i = 0; i < piece.rows; ++i) {
      if (wire::IsFinite(type, memory + (piece.memory_row + i) * row_bytes, row_bytes)) continue;
      const int64_t token = piece.file_row + i;
      course_.Note([token](RunProgress& now) {
        const bool is_first = now.rows_not_finite++ == 0;
        now.first_not_finite = is_first ? token : std::min(now.first_not_finite, token);
      });
    }
  }
}

absl::Status FileWay::WritePieces(TensorKind tensor, const FileRows& file,
                                  const std::vector<RowPiece>& pieces, const std::byte* memory) {
  CountNotFinite(tensor, pieces, memory, file.row_bytes);
  RETURN_IF_ERROR(WriteRows(file, pieces, memory));
  int64_t bytes = 0;
  for (const RowPiece& piece : pieces) bytes += piece.rows * file.row_bytes;
  course_.Note([bytes](RunProgress& progress) { progress.bytes_written += bytes; });
  return absl::OkStatus();
}

absl::Status FileWay::Write(TensorKind tensor, const FileRows& file, int64_t begin, int64_t end) {
  std::vector<RowPiece> pieces = PiecesOf(work_, store_.tokens(), tensor, begin, end);
  if (store_.host_memory()) return WritePieces(tensor, file, pieces, store_.Row(tensor, 0));
  staging_out_.resize(static_cast<size_t>((end - begin) * file.row_bytes));
  RETURN_IF_ERROR(store_.Read(tensor, begin, end - begin, staging_out_.data()));
  for (RowPiece& piece : pieces) piece.memory_row -= begin;
  return WritePieces(tensor, file, pieces, staging_out_.data());
}

absl::Status FileWay::WriteByParts(RunReplies& replies) {
  for (int64_t part = 0; part < parts_; ++part) {
    const std::vector<RowPiece> pieces = PiecesOfPart(part);
    for (const auto& [tensor, file] : files_.outputs) {
      RETURN_IF_ERROR(WritePieces(tensor, file, pieces, store_.Row(tensor, 0)));
    }
    RETURN_IF_ERROR(replies.WriteMoved());
  }
  return absl::OkStatus();
}

absl::Status FileWay::Put(int64_t rows_final, RunReplies& replies, grpc::WriteOptions /*options*/) {
  if (parts_ > 0 && !IsInOrder(TensorKind::kOut)) {
    if (rows_final < store_.rows() || written_ == rows_final) return absl::OkStatus();
    written_ = rows_final;
    return WriteByParts(replies);
  }
  const int64_t block_rows = BlockRows(files_.outputs);
  while (written_ < rows_final) {
    const int64_t end = std::min(written_ + block_rows, rows_final);
    for (const auto& [tensor, file] : files_.outputs) {
      RETURN_IF_ERROR(Write(tensor, file, written_, end));
    }
    written_ = end;
    RETURN_IF_ERROR(replies.WriteMoved());
  }
  return absl::OkStatus();
}

// Syncs by pieces, so that a slow disk is seen to move.
absl::Status FileWay::FinishOutput(RunReplies& replies) {
  for (const auto& [tensor, file] : files_.outputs) {
    const int64_t end = file.offset + work_.shape().spec.tokens * work_.shape().rows[tensor];
    for (int64_t begin = 0; begin < end; begin += kSyncBytes) {
      constexpr unsigned kAll =
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
      if (sync_file_range(file.descriptor, begin, kSyncBytes, kAll) != 0 && errno != ESPIPE &&
          errno != EINVAL && errno != ENOSYS) {
        return FileError(file.path, "cannot bring it to the disk", errno);
      }
      RETURN_IF_ERROR(replies.WriteMoved());
    }
    if (fdatasync(file.descriptor) != 0) {
      return FileError(file.path, "cannot bring it to the disk", errno);
    }
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::server

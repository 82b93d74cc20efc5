// Rows between a file, where they follow each other, and memory, where they may lie in any order.
//
//   std::vector<RowPiece> pieces = {{.file_row = 40, .memory_row = 0, .rows = 8}, ...};
//   InFileOrder(pieces);
//   ReadRows(file, pieces, memory);
//
// Neighbours in the file are read by one call straight to their places, and so are those with a
// small gap between, whose bytes are dropped: a disk, and the system, like few long reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hilbert_ring::server {

struct RowPiece {
  int64_t file_row = 0;
  int64_t memory_row = 0;
  int64_t rows = 0;
};

// The rows of a file that is open.
struct FileRows {
  int descriptor = -1;
  std::string path;  // for messages
  int64_t offset = 0;
  int64_t row_bytes = 0;
};

// Puts pieces in the order of the file; those that follow each other there and in memory become
// one.
void InFileOrder(std::vector<RowPiece>& pieces);

// Between rows of `memory`, whose row i begins at i times row_bytes, and the file. pieces: in file
// order. Errors of FileError; of reading FILE_CHANGED, naming the byte at which the file ends.
absl::Status ReadRows(const FileRows& file, std::span<const RowPiece> pieces, std::byte* memory);
absl::Status WriteRows(const FileRows& file, std::span<const RowPiece> pieces,
                       const std::byte* memory);

// The system may begin to read these rows; nothing waits for that.
void ReadAhead(const FileRows& file, std::span<const RowPiece> pieces);

}  // namespace hilbert_ring::server

// Copies rows between a file and memory, where they may lie in another order.
//
//   std::vector<RowPiece> pieces = {{.file_row = 40, .memory_row = 0, .rows = 8}, ...};
//   InFileOrder(pieces);
//   ReadRows(file, pieces, memory);
//
// A call reads neighbours in the file straight to their places, and drops the bytes of small gaps
// between them: few long reads are faster.
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

struct FileRows {
  int descriptor = -1;
  std::string path;  // for messages
  int64_t offset = 0;
  int64_t row_bytes = 0;
};

// Sorts pieces in the order of the file, and joins neighbours both there and in memory.
void InFileOrder(std::vector<RowPiece>& pieces);

// Row i of `memory` begins at i times row_bytes. pieces: in file order. Errors of FileError, and
// FILE_CHANGED if the file ends too early.
absl::Status ReadRows(const FileRows& file, std::span<const RowPiece> pieces, std::byte* memory);
absl::Status WriteRows(const FileRows& file, std::span<const RowPiece> pieces,
                       const std::byte* memory);

void ReadAhead(const FileRows& file, std::span<const RowPiece> pieces);  // without waiting

}  // namespace hilbert_ring::server

// The files of an encoder's job: tiles and coordinates as .npy, checked against the model and each
// other before anything is sent.
//
//   ASSIGN_OR_RETURN(const EncodeFiles files, OpenEncode({.tiles = "tiles.npy"}, job));
//   files.tiles.span();
//
// Messages name the file, and the axis with its value and what was expected.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/encode.h"
#include "client/cpp/npy.h"

namespace hilbert_ring::client {

// Pixels of tiles, (x, y), as a .npy file has them. Immutable; any number of threads may read one.
class TileCoordinates {
 public:
  // file: [tiles, 2], integers of 16 to 64 bits, float32 or float64, in C or Fortran order.
  // INVALID_ARGUMENT, naming the file: another type or shape.
  static absl::StatusOr<TileCoordinates> FromFile(NpyFile file, int64_t tiles);

  // Fills values [rows, 2] from first_row on.
  void Read(int64_t first_row, std::span<double> values) const;

  // As of NpyFile.
  absl::Status CheckIntact() const { return file_.CheckIntact(); }

  // Whether the file has rows of float64, as the service reads them.
  bool IsAsSent() const {
    return file_.type() == wire::NpyType::kFloat64 && !file_.fortran_order();
  }

 private:
  explicit TileCoordinates(NpyFile file) : file_(std::move(file)) {}

  NpyFile file_;
};

struct EncodePaths {
  std::string tiles, coords;  // coords empty: none
};

struct EncodeFiles {
  NpyFile tiles;
  std::optional<TileCoordinates> coordinates;
};

// Opens the files of a job whose config is known, and fills in the tiles' type and, where the job
// has no slides, one slide of all tiles. Errors of NpyFile::Open and TileCoordinates;
// INVALID_ARGUMENT: tiles of another type or width than the model's, or of another number than
// slide_tiles say, and coordinates that are missing, or of a model without positions.
absl::StatusOr<EncodeFiles> OpenEncode(const EncodePaths& paths, EncodeJob& job);

}  // namespace hilbert_ring::client

// The files of an encoder's job: tiles and coordinates as .npy, checked against the model and each
// other before anything is sent.
//
//   ASSIGN_OR_RETURN(const EncodeFiles files, OpenEncode({.tiles = "tiles.npy"}, job));
//   files.tiles.span();
//
// Messages have the file, the axis, its value and the expected value.
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

// Pixels (x, y) of tiles in a .npy file. Immutable; any number of threads may read one.
class TileCoordinates {
 public:
  // file: [tiles, 2], integers of 16 to 64 bits, float32 or float64, in C or Fortran order.
  // INVALID_ARGUMENT, with the file: another type or shape.
  static absl::StatusOr<TileCoordinates> FromFile(NpyFile file, int64_t tiles);

  // Fills values [rows, 2] from first_row on.
  void Read(int64_t first_row, std::span<double> values) const;

  absl::Status CheckIntact() const { return file_.CheckIntact(); }

  // Returns whether the workers can read the file as it is: rows of float64.
  bool IsAsSent() const {
    return file_.type() == wire::NpyType::kFloat64 && !file_.fortran_order();
  }

 private:
  explicit TileCoordinates(NpyFile file) : file_(std::move(file)) {}

  NpyFile file_;
};

struct EncodePaths {
  std::string tiles, coords;  // coords may be empty
};

struct EncodeFiles {
  NpyFile tiles;
  std::optional<TileCoordinates> coordinates;
};

// Opens the files of a job whose config is known. Fills in the tiles' type and, if the job has no
// slides, one slide of all tiles. Errors of NpyFile::Open and TileCoordinates. INVALID_ARGUMENT:
// the files contradict the job or its model.
absl::StatusOr<EncodeFiles> OpenEncode(const EncodePaths& paths, EncodeJob& job);

}  // namespace hilbert_ring::client

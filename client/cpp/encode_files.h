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

#include "absl/status/statusor.h"
#include "client/cpp/encode.h"
#include "client/cpp/npy.h"

namespace hilbert_ring::client {

// Fills values [rows, 2], pixels, from first_row on. coordinates: as OpenEncode has checked them.
void ReadPixels(const NpyFile& coordinates, int64_t first_row, std::span<double> values);

struct EncodePaths {
  std::string tiles, coords;  // coords may be empty
};

struct EncodeFiles {
  NpyFile tiles;
  // [tiles, 2], integers of 16 to 64 bits, float32 or float64, in C or Fortran order.
  std::optional<NpyFile> coordinates;
};

// Opens the files of a job whose config is known. Fills in the tiles' type and, if the job has no
// slides, one slide of all tiles. Errors of NpyFile::Open. INVALID_ARGUMENT: the files contradict
// the job or its model.
absl::StatusOr<EncodeFiles> OpenEncode(const EncodePaths& paths, EncodeJob& job);

}  // namespace hilbert_ring::client

#include "client/cpp/encode_files.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/errors.h"
#include "client/cpp/job_shape.h"
#include "client/cpp/npy_numbers.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::client {
namespace {

absl::StatusOr<NpyFile> OpenArray(const std::string& path) {
  for (const char* ending : {".h5", ".hdf5", ".npz", ".pt"}) {
    if (!absl::EndsWithIgnoreCase(path, ending)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": is ", ending,
        ", must be .npy; a slide pipeline's file is read by `hilbert-ring encode --slide ", path,
        "` and the Python package's hilbert_ring.read_slide(path)"));
  }
  return NpyFile::Open(path);
}

absl::Status CheckTiles(const NpyFile& file, EncodeJob& job) {
  const std::optional<DataType> dtype = FloatTypeOf(file.type());
  if (!dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tiles have dtype ", wire::NpyTypeName(file.type()), " ('", wire::NpyDescr(file.type()),
        "'), expected float32 ('<f4'), float16 ('<f2') or bfloat16 as raw 16-bit ('|V2'); "
        "convert them with array.astype('float32')"));
  }
  job.dtype = *dtype;
  const std::vector<int64_t>& shape = file.shape();
  const int64_t width = job.config.tile_dim();
  if (shape.size() != 2 || shape[1] != width) {
    return absl::InvalidArgumentError(absl::StrCat("tiles have shape ", wire::FormatShape(shape),
                                                   ", model ", job.model, " takes (tiles, ", width,
                                                   ")"));
  }
  if (file.fortran_order()) {
    return absl::InvalidArgumentError(
        "tiles are in Fortran order, expected C order: save them with "
        "numpy.save(path, numpy.ascontiguousarray(array))");
  }
  if (shape[0] == 0) {
    return absl::InvalidArgumentError("tiles has 0 rows, must have at least 1");
  }
  if (job.slide_tiles.empty()) job.slide_tiles = {shape[0]};
  if (shape[0] != job.tiles()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "axis 0 (tiles) is ", shape[0], ", the sequence lengths add up to ", job.tiles()));
  }
  return absl::OkStatus();
}

absl::Status CheckPixels(const NpyFile& file, int64_t tiles) {
  const wire::NpyType type = file.type();
  if (!IsInteger(type) && type != wire::NpyType::kFloat32 && type != wire::NpyType::kFloat64) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinates have dtype ", wire::NpyTypeName(type),
                     ", expected integers of 16 to 64 bits, float32 or float64"));
  }
  const std::vector<int64_t>& shape = file.shape();
  if (shape.size() == 2 && shape[0] == tiles && shape[1] == 2) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("coordinates have shape ",
                                                 wire::FormatShape(shape), ", expected (", tiles,
                                                 ", 2): x and y of each tile, in pixels"));
}

}  // namespace

void ReadPixels(const NpyFile& coordinates, int64_t first_row, std::span<double> values) {
  const auto read = [&](auto numbers) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<double>(
          numbers.At(first_row + static_cast<int64_t>(i / 2), static_cast<int64_t>(i % 2)));
    }
  };
  switch (coordinates.type()) {
    case wire::NpyType::kFloat32:
      return read(NumbersOf<float>(coordinates));
    case wire::NpyType::kFloat64:
      return read(NumbersOf<double>(coordinates));
    default:
      return VisitIntegers(coordinates, read);
  }
}

absl::StatusOr<EncodeFiles> OpenEncode(const EncodePaths& paths, EncodeJob& job) {
  ASSIGN_OR_RETURN(NpyFile tiles, OpenArray(paths.tiles));
  RETURN_IF_ERROR(AtPath(paths.tiles, CheckTiles(tiles, job)));
  EncodeFiles files{.tiles = std::move(tiles), .coordinates = std::nullopt};
  if (!job.config.position) {
    if (paths.coords.empty()) return files;
    return absl::InvalidArgumentError(
        absl::StrCat(paths.coords, ": model ", job.model, " has no positions"));
  }
  if (paths.coords.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("coords are missing: model ", job.model, " has positions"));
  }
  ASSIGN_OR_RETURN(files.coordinates, OpenArray(paths.coords));
  RETURN_IF_ERROR(AtPath(paths.coords, CheckPixels(*files.coordinates, job.tiles())));
  return files;
}

}  // namespace hilbert_ring::client

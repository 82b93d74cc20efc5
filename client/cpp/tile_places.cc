#include "client/cpp/tile_places.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::client {
namespace {

constexpr double kPlacesPerSide = 8;  // tiles that overlap by seven eighths have a place each

}  // namespace

TilePlaces::TilePlaces(int64_t tile_size, std::span<const int64_t> slide_tiles)
    : places_per_pixel_(kPlacesPerSide / static_cast<double>(tile_size)),
      slide_tiles_(slide_tiles) {}

absl::Status TilePlaces::Add(std::span<const double> coords) {
  const auto place = [this](double pixels) {
    return static_cast<int64_t>(std::floor(pixels * places_per_pixel_));
  };
  for (size_t i = 0; i + 1 < coords.size() && slide_ < slide_tiles_.size(); i += 2) {
    places_.push_back(place(coords[i]) << 32 | place(coords[i + 1]));
    if (std::ssize(places_) == slide_tiles_[slide_]) RETURN_IF_ERROR(EndSlide());
  }
  return absl::OkStatus();
}

absl::Status TilePlaces::EndSlide() {
  std::sort(places_.begin(), places_.end());
  const auto distinct = std::distance(places_.begin(), std::unique(places_.begin(), places_.end()));
  const int64_t tiles = slide_tiles_[slide_++];
  places_.clear();
  if (2 * distinct >= tiles) return absl::OkStatus();
  const std::string which =
      slide_tiles_.size() > 1 ? absl::StrCat("coords of slide ", slide_ - 1) : "coords";
  return absl::InvalidArgumentError(absl::StrCat(
      which, " has ", distinct, " distinct places, must have at least ", (tiles + 1) / 2, " for ",
      tiles, " tiles: tiles of ", kPlacesPerSide / places_per_pixel_,
      " pixels do not lie so close, coordinates that are normalised or in another unit do"));
}

}  // namespace hilbert_ring::client

// The lanes and keys of a tile in the scratch: limits of the mask, and places for biases.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/device/cpu/attention_kernel.h"
#include "engine/device/cpu/distances.h"
#include "engine/device/cpu/key_tile.h"
#include "engine/device/cpu/key_visibility.h"

namespace hilbert_ring {

// all_lanes: with empty ones after the tile's last, which see nothing. They begin at `place`.
inline void FillLimits(const KeyVisibility& visibility, const LaneTile& tile, int64_t all_lanes,
                       int64_t place, AttentionScratch& scratch) {
  const int64_t heads = tile.task->heads, lanes = tile.end - tile.begin;
  int64_t row = tile.begin / heads;
  int64_t head = tile.begin % heads;
  auto limit = static_cast<float>(visibility.Limit(row));
  auto start = static_cast<float>(visibility.Start(row));
  for (int64_t lane = 0; lane < all_lanes; ++lane) {
    scratch.limits[place + lane] = lane < lanes ? limit : 0.0f;
    scratch.starts[place + lane] = lane < lanes ? start : 0.0f;
    if (++head == heads && lane + 1 < lanes) {
      head = 0;
      limit = static_cast<float>(visibility.Limit(++row));
      start = static_cast<float>(visibility.Start(row));
    }
  }
}

// Puts the place of a row at index `at` of the parts. position(): read without axes.
template <typename Position, int64_t kCount>
inline void Place(int axes, const CoordinatesView& view, int64_t batch, int64_t row,
                  const Position& position, float (&parts)[kPlaceParts][kCount], int64_t at) {
  if (axes == 0) {
    SplitPosition(position(), parts[0][at], parts[1][at]);
    return;
  }
  const float* from = view.data + batch * view.batch_stride + row * view.row_stride;
  for (int axis = 0; axis < kPlaceParts; ++axis) parts[axis][at] = axis < axes ? from[axis] : 0.0f;
}

// The task has slopes. Lanes after the tile's last have slope 0.
inline void PlaceLanes(const LaneTile& tile, int64_t all_lanes, int64_t place,
                       AttentionScratch& scratch) {
  const AttentionTask& task = *tile.task;
  const int64_t lanes = tile.end - tile.begin;
  for (int64_t lane = 0; lane < all_lanes; ++lane) {
    const int64_t row = (tile.begin + std::min(lane, lanes - 1)) / task.heads;
    Place(
        task.change.axes, task.query_coordinates, tile.batch, row,
        [&] { return QueryPosition(task, tile.batch, row); }, scratch.lane_places, place + lane);
    const int64_t head = (tile.begin + lane) % task.heads;
    scratch.slopes[place + lane] = lane < lanes ? task.change.slopes[head] : 0.0f;
  }
}

inline void PlaceKeys(const AttentionTask& task, const KeyRange& keys, AttentionScratch& scratch) {
  for (int64_t j = 0; j < keys.count; ++j) {
    const int64_t row = keys.begin + j;
    Place(
        task.change.axes, task.key_coordinates, keys.batch, row,
        [&] { return KeyPosition(task, keys.batch, row); }, scratch.key_places, j);
  }
}

// Queries in the scratch have the sign of the scale, exactly, so the greatest score stays the
// greatest. The scale of their scores is then above 0.
inline float QuerySign(const AttentionTask& task) {
  return task.scale > 0 ? 1.0f : task.scale < 0 ? -1.0f : 0.0f;
}
inline float ScratchScale(const AttentionTask& task) {
  const float scale = task.StateScale();
  return scale == 0 ? 1.0f : std::abs(scale);
}

inline TileChange ChangeOf(const AttentionTask& task, const AttentionScratch& scratch) {
  return {.scale = std::abs(task.scale),
          .softcap = task.change.softcap,
          .axes = task.change.axes,
          .places = {scratch.key_places[0], scratch.key_places[1], scratch.key_places[2]}};
}

inline LaneDistances DistancesOf(const AttentionTask& task, const AttentionScratch& scratch,
                                 int64_t first_lane) {
  if (task.change.slopes == nullptr) return {};
  return {.slopes = scratch.slopes + first_lane,
          .places = {scratch.lane_places[0] + first_lane, scratch.lane_places[1] + first_lane,
                     scratch.lane_places[2] + first_lane}};
}

}  // namespace hilbert_ring

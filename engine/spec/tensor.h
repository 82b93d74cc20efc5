// The tensors of a job and the sizes of their rows.
#pragma once

#include <array>
#include <cstdint>

#include "engine/spec/job_spec.h"

namespace hilbert_ring {

enum class TensorKind {
  kQ,
  kK,
  kV,
  kOut,
  kLse,
  // Encoders' jobs:
  kTiles,
  kTileCoords,    // float64 [2]
  kStates,        // float32 [states, embed_dim]
  kAttentionMap,  // float32 [1 or heads]
  // Of a bias, float32 [axes]: those of keys, then those of queries if HasQueryCoordinates(spec).
  // They reach a shard with the order.
  kBiasCoords,
};
inline constexpr int kTensorKinds = 10;

// Tensors that clients send to a shard, and that leave it.
inline constexpr TensorKind kInputKinds[] = {TensorKind::kQ, TensorKind::kK, TensorKind::kV,
                                             TensorKind::kTiles, TensorKind::kTileCoords};
inline constexpr TensorKind kOutputKinds[] = {TensorKind::kOut, TensorKind::kLse,
                                              TensorKind::kStates, TensorKind::kAttentionMap};

bool IsInput(TensorKind tensor);
bool IsOutput(TensorKind tensor);

// Bytes of one token's row, all heads; 0 for tensors that attention does not have.
int64_t RowBytes(const JobSpec& spec, TensorKind tensor);

// Bytes of a row of each tensor of a job; 0 if the job does not have it.
class RowSizes {
 public:
  RowSizes() = default;
  explicit RowSizes(const JobSpec& spec);

  int64_t operator[](TensorKind tensor) const { return bytes_[static_cast<int>(tensor)]; }
  void Set(TensorKind tensor, int64_t bytes) { bytes_[static_cast<int>(tensor)] = bytes; }
  bool Has(TensorKind tensor) const { return (*this)[tensor] > 0; }

  int inputs() const;  // the number of input tensors that the job has

 private:
  std::array<int64_t, kTensorKinds> bytes_{};
};

}  // namespace hilbert_ring

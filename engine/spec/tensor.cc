#include "engine/spec/tensor.h"

#include <algorithm>
#include <iterator>

namespace hilbert_ring {

bool IsInput(TensorKind tensor) {
  return std::ranges::find(kInputKinds, tensor) != std::end(kInputKinds);
}

bool IsOutput(TensorKind tensor) {
  return std::ranges::find(kOutputKinds, tensor) != std::end(kOutputKinds);
}

int64_t RowBytes(const JobSpec& spec, TensorKind tensor) {
  const int64_t element = ElementBytes(spec.dtype);
  switch (tensor) {
    case TensorKind::kQ:
      return spec.heads * spec.head_dim * element;
    case TensorKind::kK:
      return spec.kv_heads * spec.head_dim * element;
    case TensorKind::kV:
      return spec.kv_heads * spec.value_dim * element;
    case TensorKind::kOut:
      return spec.heads * spec.value_dim * element;
    case TensorKind::kLse:
      return spec.heads * static_cast<int64_t>(sizeof(float));
    case TensorKind::kBiasCoords:
      return BiasAxes(spec) * static_cast<int64_t>(sizeof(float));
    case TensorKind::kTiles:
    case TensorKind::kTileCoords:
    case TensorKind::kStates:
    case TensorKind::kAttentionMap:
      return 0;
  }
  return 0;
}

RowSizes::RowSizes(const JobSpec& spec) {
  for (int i = 0; i < kTensorKinds; ++i) bytes_[i] = RowBytes(spec, static_cast<TensorKind>(i));
}

int RowSizes::inputs() const {
  return static_cast<int>(
      std::ranges::count_if(kInputKinds, [this](TensorKind tensor) { return Has(tensor); }));
}

}  // namespace hilbert_ring

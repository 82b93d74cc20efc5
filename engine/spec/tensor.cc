#include "engine/spec/tensor.h"

namespace hilbert_ring {

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
  }
  return 0;
}

}  // namespace hilbert_ring

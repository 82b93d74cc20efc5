#include "engine/device/check_task.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hilbert_ring {
namespace {

constexpr int64_t kMaxDim = 256;  // of any kernel

}  // namespace

absl::Status CheckTask(const AttentionTask& task) {
  if (task.batch < 0 || task.heads < 0 || task.query_rows < 0 || task.key_rows < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention of batch ", task.batch, ", heads ", task.heads, ", query_rows ",
                     task.query_rows, ", key_rows ", task.key_rows, ": none may be below 0"));
  }
  for (const auto& [name, dim] :
       {std::pair{"head_dim", task.head_dim}, std::pair{"value_dim", task.value_dim}}) {
    if (dim < 8 || dim > kMaxDim || dim % 8 != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is ", dim, ", must be a multiple of 8 from 8 to ", kMaxDim));
    }
  }
  if (!std::isfinite(task.scale)) {
    return absl::InvalidArgumentError(absl::StrCat("scale is ", task.scale, ", must be finite"));
  }
  if (task.result == Result::kMerge && task.out_dtype != DataType::kFloat32) {
    return absl::InvalidArgumentError("out_dtype of a merged result must be float32");
  }
  return absl::OkStatus();
}

absl::Status CheckTask(const ZeroKeysTask& task) {
  if (task.count >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("count of zero keys is ", task.count, ", must be at least 0"));
}

}  // namespace hilbert_ring

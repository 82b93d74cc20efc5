#include "engine/device/row_math.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hilbert_ring {
namespace {

// Products count in 32 bits.
constexpr int64_t kMostNumbers = std::numeric_limits<int32_t>::max();

absl::Status CheckSizes(std::initializer_list<std::pair<const char*, int64_t>> sizes) {
  for (const auto& [name, size] : sizes) {
    if (size >= 0 && size <= kMostNumbers) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", size, ", must be from 0 to ", kMostNumbers));
  }
  return absl::OkStatus();
}

absl::Status Check(const ProductTask& task) {
  absl::Status status = CheckSizes({{"rows", task.rows}, {"in", task.in}, {"out", task.out}});
  if (status.ok() && task.dtype == DataType::kFloat16) {
    return absl::InvalidArgumentError("dtype of a product is float16, must be float32 or bfloat16");
  }
  return status;
}

absl::Status Check(const RowsTask& task) {
  absl::Status status = CheckSizes({{"rows", task.rows}, {"dim", task.dim}});
  if (status.ok() && task.from_stride < task.dim && task.rows > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("from_stride is ", task.from_stride, ", must be at least dim ", task.dim));
  }
  return status;
}

absl::Status Check(const PlaceTask& task) {
  absl::Status status = CheckSizes({{"rows", task.rows}, {"dim", task.dim}});
  if (status.ok() && task.coords != nullptr && task.dim % 4 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("dim is ", task.dim, ", must be divisible by 4 for positions"));
  }
  return status;
}

absl::Status Check(const SumTask& task) {
  return CheckSizes({{"rows", task.rows}, {"dim", task.dim}});
}

std::string Name(const ProductTask& task) {
  return absl::StrCat("a product of ", task.rows, " x ", task.in, " with ", task.out, " x ",
                      task.in, " in ", task.dtype == DataType::kBFloat16 ? "bfloat16" : "float32");
}

std::string Name(const RowsTask& task) {
  return absl::StrCat(task.norm.weight != nullptr ? "the norm of " : "", task.rows, " rows of ",
                      task.dim);
}

std::string Name(const PlaceTask& task) {
  return absl::StrCat("placing ", task.rows, " rows of ", task.dim);
}

std::string Name(const SumTask& task) {
  return absl::StrCat("the sum of ", task.rows, " rows of ", task.dim);
}

}  // namespace

absl::Status CheckStep(const ModelStep& step) {
  return std::visit([](const auto& task) { return Check(task); }, step);
}

std::string NameOf(const ModelStep& step) {
  return std::visit([](const auto& task) { return Name(task); }, step);
}

}  // namespace hilbert_ring

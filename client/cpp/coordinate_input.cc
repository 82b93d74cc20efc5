#include "client/cpp/coordinate_input.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/npy_numbers.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::client {

template <typename Function>
auto CoordinateInput::Visit(Function function) const {
  if (const auto* rows = std::get_if<std::vector<int64_t>>(&source_)) {
    return function(Numbers<int64_t>(rows->data(), axes_, 1));
  }
  return VisitIntegers(std::get<NpyFile>(source_), function);
}

absl::StatusOr<CoordinateInput> CoordinateInput::FromFile(NpyFile file, int64_t tokens) {
  const std::vector<int64_t>& shape = file.shape();
  if (!IsInteger(file.type())) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": dtype is ", wire::NpyTypeName(file.type()),
                     ", expected integers of 16 to 64 bits (int16 to int64, uint16 to uint64)"));
  }
  if (shape.size() != 2 || (shape[1] != 2 && shape[1] != 3)) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": shape is ",
                                                   wire::FormatShape(shape), ", expected (", tokens,
                                                   ", 2) or (", tokens, ", 3): [tokens, axes]"));
  }
  if (shape[0] != tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": axis 0 (tokens) is ", shape[0], ", the job has ", tokens));
  }
  const std::string path = file.path();
  const int axes = static_cast<int>(shape[1]);
  CoordinateInput coordinates(std::move(file), tokens, axes);
  RETURN_IF_ERROR(coordinates.CheckRange(path));
  return coordinates;
}

absl::StatusOr<CoordinateInput> CoordinateInput::FromRows(std::vector<int64_t> rows, int64_t tokens,
                                                          int axes) {
  if ((axes != 2 && axes != 3) || static_cast<int64_t>(rows.size()) / axes != tokens ||
      static_cast<int64_t>(rows.size()) % axes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ordering.coords: has ", rows.size(), " numbers, expected ", tokens, " rows of ", axes));
  }
  CoordinateInput coordinates(std::move(rows), tokens, axes);
  RETURN_IF_ERROR(coordinates.CheckRange("ordering.coords"));
  return coordinates;
}

absl::Status CoordinateInput::CheckRange(const std::string& name) const {
  const int64_t limit = axes_ == 2 ? (int64_t{1} << 32) - 1 : (int64_t{1} << 21) - 1;
  return Visit([&](auto numbers) -> absl::Status {
    for (int64_t row = 0; row < tokens_; ++row) {
      for (int axis = 0; axis < axes_; ++axis) {
        const auto value = numbers.At(row, axis);
        if (!std::cmp_less(value, 0) && !std::cmp_greater(value, limit)) continue;
        return absl::OutOfRangeError(absl::StrCat(name, ": row ", row, ", axis ", axis,
                                                  ": coordinate ", value, " is outside [0, ", limit,
                                                  "], the range with ", axes_, " axes"));
      }
    }
    return absl::OkStatus();
  });
}

absl::Status CoordinateInput::CheckIntact() const {
  const NpyFile* file = std::get_if<NpyFile>(&source_);
  return file == nullptr ? absl::OkStatus() : file->CheckIntact();
}

template <typename T>
void CoordinateInput::Copy(int64_t first_row, std::span<T> values) const {
  Visit([&](auto numbers) {
    auto value = values.begin();
    for (int64_t row = first_row; value != values.end(); ++row) {
      for (int axis = 0; axis < axes_; ++axis) {
        *value++ = static_cast<T>(numbers.At(row, axis));
      }
    }
  });
}

void CoordinateInput::Read(int64_t first_row, std::span<uint32_t> values) const {
  Copy(first_row, values);
}

std::vector<int64_t> CoordinateInput::All() const {
  std::vector<int64_t> all(static_cast<size_t>(tokens_ * axes_));
  Copy(0, std::span(all));
  return all;
}

}  // namespace hilbert_ring::client

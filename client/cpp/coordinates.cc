#include "client/cpp/coordinates.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::client {
namespace {

// Numbers of one type that need not be aligned.
template <typename T>
class Numbers {
 public:
  explicit Numbers(const void* begin) : begin_(static_cast<const char*>(begin)) {}
  T operator[](int64_t index) const {
    T value;
    std::memcpy(&value, begin_ + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }

 private:
  const char* begin_;
};

bool IsInteger(NpyType type) {
  switch (type) {
    case NpyType::kInt16:
    case NpyType::kUInt16:
    case NpyType::kInt32:
    case NpyType::kUInt32:
    case NpyType::kInt64:
    case NpyType::kUInt64:
      return true;
    default:
      return false;
  }
}

}  // namespace

// Calls function(numbers), an indexable of the source's own type.
template <typename Function>
auto Coordinates::Visit(Function function) const {
  if (const auto* rows = std::get_if<std::vector<int64_t>>(&source_)) {
    return function(Numbers<int64_t>(rows->data()));
  }
  const NpyFile& file = std::get<NpyFile>(source_);
  switch (file.type()) {
    case NpyType::kInt16:
      return function(Numbers<int16_t>(file.data()));
    case NpyType::kUInt16:
      return function(Numbers<uint16_t>(file.data()));
    case NpyType::kInt32:
      return function(Numbers<int32_t>(file.data()));
    case NpyType::kUInt32:
      return function(Numbers<uint32_t>(file.data()));
    case NpyType::kUInt64:
      return function(Numbers<uint64_t>(file.data()));
    default:
      return function(Numbers<int64_t>(file.data()));
  }
}

absl::StatusOr<Coordinates> Coordinates::FromFile(NpyFile file, int64_t tokens) {
  const std::vector<int64_t>& shape = file.shape();
  if (!IsInteger(file.type())) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": dtype is ", NpyTypeName(file.type()),
                     ", coordinates are integers (int32, uint32, int64 or uint64)"));
  }
  if (shape.size() != 2 || (shape[1] != 2 && shape[1] != 3)) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": shape is ", FormatShape(shape),
                                                   ", expected (", tokens, ", 2) or (", tokens,
                                                   ", 3): [tokens, axes]"));
  }
  if (shape[0] != tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": axis 0 (tokens) is ", shape[0], ", the spec says ", tokens));
  }
  const std::string path = file.path();
  const int axes = static_cast<int>(shape[1]);
  Coordinates coordinates(std::move(file), tokens, axes);
  if (absl::Status status = coordinates.CheckRange(path); !status.ok()) return status;
  return coordinates;
}

absl::StatusOr<Coordinates> Coordinates::FromRows(std::vector<int64_t> rows, int64_t tokens,
                                                  int axes) {
  if ((axes != 2 && axes != 3) || static_cast<int64_t>(rows.size()) / axes != tokens ||
      static_cast<int64_t>(rows.size()) % axes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ordering.coords: has ", rows.size(), " numbers, expected ", tokens, " rows of ", axes));
  }
  Coordinates coordinates(std::move(rows), tokens, axes);
  if (absl::Status status = coordinates.CheckRange("ordering.coords"); !status.ok()) return status;
  return coordinates;
}

absl::Status Coordinates::CheckRange(const std::string& name) const {
  const int64_t limit = axes_ == 2 ? (int64_t{1} << 32) - 1 : (int64_t{1} << 21) - 1;
  return Visit([&](auto numbers) -> absl::Status {
    for (int64_t i = 0; i < tokens_ * axes_; ++i) {
      const auto value = numbers[i];
      if (std::cmp_less(value, 0) || std::cmp_greater(value, limit)) {
        return absl::OutOfRangeError(absl::StrCat(name, ": row ", i / axes_, ", axis ", i % axes_,
                                                  ": coordinate ", value, " is outside [0, ", limit,
                                                  "], the range with ", axes_, " axes"));
      }
    }
    return absl::OkStatus();
  });
}

void Coordinates::Read(int64_t first_row, std::span<uint32_t> values) const {
  Visit([&](auto numbers) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<uint32_t>(numbers[first_row * axes_ + static_cast<int64_t>(i)]);
    }
  });
}

std::vector<int64_t> Coordinates::All() const {
  std::vector<int64_t> all(static_cast<size_t>(tokens_ * axes_));
  Visit([&](auto numbers) {
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = static_cast<int64_t>(numbers[static_cast<int64_t>(i)]);
    }
  });
  return all;
}

}  // namespace hilbert_ring::client

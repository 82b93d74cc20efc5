// The coordinates of a job's tokens, (x, y) or (x, y, z), from a .npy file or from the spec itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/npy.h"

namespace hilbert_ring::client {

// Immutable; any number of threads may read one.
class CoordinateInput {
 public:
  // file: integers [tokens, 2 or 3], in C or Fortran order. INVALID_ARGUMENT: another type or
  // shape. OUT_OF_RANGE: a coordinate is negative or not below 2^32 (two axes) or 2^21 (three). The
  // message has the file, row, axis, value and limit.
  static absl::StatusOr<CoordinateInput> FromFile(NpyFile file, int64_t tokens);

  // rows: [tokens, axes], row-major, "ordering.coords" in messages. Errors as above.
  static absl::StatusOr<CoordinateInput> FromRows(std::vector<int64_t> rows, int64_t tokens,
                                                  int axes);

  int64_t tokens() const { return tokens_; }
  int axes() const { return axes_; }

  absl::Status CheckIntact() const;

  // Fills values [rows, axes] from first_row on.
  void Read(int64_t first_row, std::span<uint32_t> values) const;

  std::vector<int64_t> All() const;  // [tokens, axes]

 private:
  CoordinateInput(std::variant<NpyFile, std::vector<int64_t>> source, int64_t tokens, int axes)
      : source_(std::move(source)), tokens_(tokens), axes_(axes) {}

  template <typename Function>
  auto Visit(Function function) const;

  template <typename T>
  void Copy(int64_t first_row, std::span<T> values) const;
  absl::Status CheckRange(const std::string& name) const;

  std::variant<NpyFile, std::vector<int64_t>> source_;
  int64_t tokens_;
  int axes_;
};

}  // namespace hilbert_ring::client

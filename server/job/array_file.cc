#include "server/job/array_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/files/open_beneath.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using wire::NpyType;

absl::Status BadOpen(const std::string& message) {
  return wire::ErrorOf(wire::reason::kInvalidOpen, message);
}

bool IsInteger(NpyType type) { return type >= NpyType::kInt16 && type <= NpyType::kUInt64; }

absl::Status CheckType(const std::string& path, const JobArray& array, NpyType type) {
  const bool right = array.numbers == JobArray::Numbers::kIntegers ? IsInteger(type)
                     : array.numbers == JobArray::Numbers::kFloat64
                         ? type == NpyType::kFloat64
                         : wire::MayHold(type, array.dtype);
  if (right) return absl::OkStatus();
  const char* const wanted = array.numbers == JobArray::Numbers::kIntegers ? "integers"
                             : array.numbers == JobArray::Numbers::kFloat64
                                 ? "float64"
                                 : wire::NpyTypeName(TypeOf(array.dtype));
  return Misshapen(path, absl::StrCat("has numbers of type ", wire::NpyTypeName(type),
                                      ", the job wants ", wanted));
}

absl::Status CheckShape(const std::string& path, const std::vector<int64_t>& shape,
                        const std::vector<int64_t>& wanted) {
  if (shape == wanted) return absl::OkStatus();
  return Misshapen(path, absl::StrCat("has the shape ", wire::FormatShape(shape),
                                      ", the job wants ", wire::FormatShape(wanted)));
}

absl::StatusOr<wire::NpyHeader> ReadHeader(const Descriptor& file, const std::string& path) {
  constexpr size_t kPrefix = 12;  // magic, version, length
  constexpr size_t kLikely = 256;
  std::string begin(kLikely, '\0');
  while (true) {
    const ssize_t bytes = pread(file.number(), begin.data(), begin.size(), 0);
    if (bytes < 0) return FileError(path, "cannot read", errno);
    const bool cut = bytes == std::ssize(begin);
    begin.resize(static_cast<size_t>(bytes));
    auto header = wire::ParseNpyHeader(begin);
    if (header.ok()) return header;
    if (!cut || begin.size() >= kPrefix + wire::kMaxNpyHeaderBytes) {
      return Misshapen(path, std::string(header.status().message()));
    }
    begin.resize(kPrefix + wire::kMaxNpyHeaderBytes);
  }
}

template <typename Integer>
absl::Status Narrow(const std::string& path, const std::string& bytes, int64_t first, int axes,
                    std::string& narrow) {
  const auto* values = reinterpret_cast<const Integer*>(bytes.data());
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(Integer));
  auto* to = reinterpret_cast<uint32_t*>(narrow.data());
  for (int64_t i = 0; i < count; ++i) {
    if (std::cmp_less(values[i], 0) ||
        std::cmp_greater(values[i], std::numeric_limits<uint32_t>::max())) {
      return wire::ErrorOf(wire::reason::kBadCoordinates,
                           absl::StrCat(path, ": row ", first + i / axes, ", axis ", i % axes,
                                        " is ", values[i], ", must be 0 to 2^32 - 1"));
    }
    to[i] = static_cast<uint32_t>(values[i]);
  }
  return absl::OkStatus();
}

absl::Status NarrowTo(NpyType type, const std::string& path, const std::string& bytes,
                      int64_t first, int axes, std::string& narrow) {
  switch (type) {
    case NpyType::kInt16:
      return Narrow<int16_t>(path, bytes, first, axes, narrow);
    case NpyType::kUInt16:
      return Narrow<uint16_t>(path, bytes, first, axes, narrow);
    case NpyType::kInt32:
      return Narrow<int32_t>(path, bytes, first, axes, narrow);
    case NpyType::kUInt32:
      return Narrow<uint32_t>(path, bytes, first, axes, narrow);
    case NpyType::kInt64:
      return Narrow<int64_t>(path, bytes, first, axes, narrow);
    default:
      return Narrow<uint64_t>(path, bytes, first, axes, narrow);
  }
}

}  // namespace

absl::Status Misshapen(const std::string& path, const std::string& what) {
  return wire::ErrorOf(wire::reason::kFileMisshapen, absl::StrCat(path, ": ", what));
}

NpyType TypeOf(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return NpyType::kFloat16;
    case DataType::kBFloat16:
      return NpyType::kRaw16;
    case DataType::kFloat32:
      break;
  }
  return NpyType::kFloat32;
}

absl::StatusOr<ArrayBegin> BeginOfRaw(const v1::RawFile& raw, const std::string& path,
                                      const JobArray& array) {
  const std::optional<DataType> dtype = wire::DecodeDataType(raw.dtype());
  if (!dtype) return BadOpen(absl::StrCat("files: raw.dtype of ", path, " is not given"));
  if (raw.offset() < 0) {
    return BadOpen(absl::StrCat("files: raw.offset of ", path, " is ", raw.offset(),
                                ", must not be negative"));
  }
  RETURN_IF_ERROR(CheckShape(path, {raw.shape().begin(), raw.shape().end()}, array.shape));
  RETURN_IF_ERROR(CheckType(path, array, TypeOf(*dtype)));
  return ArrayBegin{raw.offset(), TypeOf(*dtype)};
}

absl::StatusOr<ArrayBegin> BeginOf(const v1::TensorFile& file, const std::string& path,
                                   const Descriptor& opened, const JobArray& array) {
  if (file.has_raw()) return BeginOfRaw(file.raw(), path, array);
  ASSIGN_OR_RETURN(const wire::NpyHeader header, ReadHeader(opened, path));
  if (header.fortran_order) return Misshapen(path, "is in Fortran order, must be in C order");
  RETURN_IF_ERROR(CheckShape(path, header.shape, array.shape));
  RETURN_IF_ERROR(CheckType(path, array, header.type));
  return ArrayBegin{header.data_offset, header.type};
}

absl::StatusOr<std::string> Narrowed(NpyType type, const std::string& path,
                                     const std::string& bytes, int64_t first, int axes) {
  std::string narrow(
      bytes.size() / static_cast<size_t>(wire::NpyItemBytes(type)) * sizeof(uint32_t), '\0');
  RETURN_IF_ERROR(NarrowTo(type, path, bytes, first, axes, narrow));
  return narrow;
}

}  // namespace hilbert_ring::server

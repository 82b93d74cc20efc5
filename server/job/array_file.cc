#include "server/job/array_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "server/files/open_beneath.h"
#include "server/job/job_open.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using wire::NpyType;

bool IsInteger(NpyType type) { return type >= NpyType::kInt16 && type <= NpyType::kUInt64; }

bool IsSigned(NpyType type) {
  return type == NpyType::kInt16 || type == NpyType::kInt32 || type == NpyType::kInt64;
}

absl::StatusOr<ArrayBegin> Check(const ArrayBegin& begin, const std::vector<int64_t>& shape,
                                 const std::string& path, const JobArray& array) {
  if (shape != array.shape) {
    return Misshapen(path, absl::StrCat("has the shape ", wire::FormatShape(shape),
                                        ", the job wants ", wire::FormatShape(array.shape)));
  }
  bool right = false;
  const char* wanted = "integers";
  switch (array.numbers) {
    case JobArray::Numbers::kIntegers:
      right = IsInteger(begin.type);
      break;
    case JobArray::Numbers::kFloat64:
      right = begin.type == NpyType::kFloat64;
      wanted = "float64";
      break;
    case JobArray::Numbers::kOfDtype:
      right = wire::MayHold(begin.type, array.dtype);
      wanted = wire::NpyTypeName(TypeOf(array.dtype));
      break;
  }
  if (right) return begin;
  return Misshapen(path, absl::StrCat("has numbers of type ", wire::NpyTypeName(begin.type),
                                      ", the job wants ", wanted));
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
  return Check({raw.offset(), TypeOf(*dtype)}, {raw.shape().begin(), raw.shape().end()}, path,
               array);
}

absl::StatusOr<ArrayBegin> BeginOf(const v1::TensorFile& file, const std::string& path,
                                   const Descriptor& opened, const JobArray& array) {
  if (file.has_raw()) return BeginOfRaw(file.raw(), path, array);
  ASSIGN_OR_RETURN(const wire::NpyHeader header, ReadHeader(opened, path));
  if (header.fortran_order) return Misshapen(path, "is in Fortran order, must be in C order");
  return Check({header.data_offset, header.type}, header.shape, path, array);
}

absl::StatusOr<std::string> Narrowed(NpyType type, const std::string& path,
                                     const std::string& bytes, int64_t first, int axes) {
  const auto width = static_cast<size_t>(wire::NpyItemBytes(type));
  const auto unused_bits = static_cast<int>(64 - 8 * width);
  std::string narrow(bytes.size() / width * sizeof(uint32_t), '\0');
  for (size_t i = 0; i < bytes.size() / width; ++i) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + i * width, width);
    const auto extended = static_cast<int64_t>(value << unused_bits) >> unused_bits;
    const bool negative = IsSigned(type) && extended < 0;
    if (negative || value > std::numeric_limits<uint32_t>::max()) {
      return wire::ErrorOf(
          wire::reason::kBadCoordinates,
          absl::StrCat(path, ": row ", first + static_cast<int64_t>(i) / axes, ", axis ",
                       static_cast<int64_t>(i) % axes, " is ", negative ? "-" : "",
                       negative ? -static_cast<uint64_t>(extended) : value,
                       ", must be 0 to 2^32 - 1"));
    }
    const auto number = static_cast<uint32_t>(value);
    std::memcpy(narrow.data() + i * sizeof(number), &number, sizeof(number));
  }
  return narrow;
}

}  // namespace hilbert_ring::server

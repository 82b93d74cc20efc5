#include "engine/model/files/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/numbers.h"
#include "engine/spec/object_reader.h"
#include "engine/spec/watched_json.h"

namespace hilbert_ring {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr char kWhat[] = "the safetensors header";
constexpr char kMetadata[] = "__metadata__";

constexpr size_t kPieceElements = size_t{1} << 18;

constexpr size_t kMaxAxes = 32;

struct ElementType {
  const char* name;
  int64_t bytes;
};

// A file may hold tensors that no encoder reads.
constexpr std::array<ElementType, 15> kElementTypes{{{"BOOL", 1},
                                                     {"U8", 1},
                                                     {"I8", 1},
                                                     {"F8_E5M2", 1},
                                                     {"F8_E4M3", 1},
                                                     {"I16", 2},
                                                     {"U16", 2},
                                                     {"F16", 2},
                                                     {"BF16", 2},
                                                     {"I32", 4},
                                                     {"U32", 4},
                                                     {"F32", 4},
                                                     {"F64", 8},
                                                     {"I64", 8},
                                                     {"U64", 8}}};

absl::Status Wrong(std::string_view name, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(name), " ", std::string(what)));
}

// Empty if the size overflows.
std::optional<int64_t> BytesOf(int64_t element_bytes, std::span<const int64_t> shape) {
  int64_t bytes = element_bytes;
  for (const int64_t axis : shape) {
    if (axis < 0 || __builtin_mul_overflow(bytes, axis, &bytes)) return std::nullopt;
  }
  return bytes;
}

// data: bytes after the header, which begin at `begin` of the file.
absl::StatusOr<SafetensorsEntry> ParseEntry(const std::string& name, const Json& object,
                                            int64_t begin, int64_t data) {
  if (!object.is_object()) return Wrong(name, "is no object of dtype, shape and data_offsets");
  const std::string place = Quoted(name);
  ObjectReader reader(object, place);
  reader.Require({"dtype", "shape", "data_offsets"});
  SafetensorsEntry entry{.name = name};
  std::vector<int64_t> offsets;
  reader.Integers("shape", entry.shape);
  reader.Integers("data_offsets", offsets);
  RETURN_IF_ERROR(reader.status());
  const Json& dtype = object.at("dtype");
  if (!dtype.is_string()) return WrongType(place + ".dtype", "a name", dtype);
  entry.dtype = dtype.get<std::string>();
  const auto type = std::ranges::find_if(
      kElementTypes, [&](const ElementType& known) { return known.name == entry.dtype; });
  if (type == kElementTypes.end()) {
    return Wrong(name, absl::StrCat("has the unknown dtype ", Quoted(entry.dtype)));
  }
  if (entry.shape.size() > kMaxAxes) {
    return Wrong(name,
                 absl::StrCat("has ", entry.shape.size(), " axes, must have at most ", kMaxAxes));
  }
  if (offsets.size() != 2) {
    return Wrong(name, absl::StrCat("has ", offsets.size(), " data_offsets, must have 2"));
  }
  if (offsets[0] < 0 || offsets[1] < offsets[0] || offsets[1] > data) {
    return Wrong(name, absl::StrCat("has data_offsets [", offsets[0], ", ", offsets[1],
                                    "], must rise within [0, ", data, "], the file's data"));
  }
  const std::optional<int64_t> bytes = BytesOf(type->bytes, entry.shape);
  if (bytes != offsets[1] - offsets[0]) {
    return Wrong(name, absl::StrCat("of shape ", FormatTensorShape(entry.shape), " and dtype ",
                                    entry.dtype, " has ", offsets[1] - offsets[0],
                                    " bytes between its data_offsets, must have ",
                                    bytes ? absl::StrCat(*bytes) : "more than a file can"));
  }
  entry.begin = begin + offsets[0];
  entry.end = begin + offsets[1];
  return entry;
}

// Checks that every byte after the header belongs to one tensor.
absl::Status CheckTiling(const std::vector<SafetensorsEntry>& entries, int64_t begin, int64_t end) {
  std::vector<const SafetensorsEntry*> by_place;
  by_place.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) by_place.push_back(&entry);
  std::ranges::sort(by_place, {}, [](const SafetensorsEntry* entry) {
    return std::pair(entry->begin, entry->end);
  });
  int64_t next = begin;
  for (const SafetensorsEntry* entry : by_place) {
    if (entry->begin < next) {
      return Wrong(entry->name,
                   absl::StrCat("begins at byte ", entry->begin - begin,
                                " of the data, before the end of another at ", next - begin));
    }
    if (entry->begin > next) {
      return Wrong(entry->name,
                   absl::StrCat("begins at byte ", entry->begin - begin, " of the data, behind ",
                                entry->begin - next, " bytes of no tensor"));
    }
    next = entry->end;
  }
  if (next == end) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the file ends with ", end - next, " bytes of no tensor"));
}

absl::Status Named(const ReadableFile& file, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(file.path(), ": ", status.message()));
}

absl::StatusOr<std::vector<std::byte>> ReadHead(const ReadableFile& file) {
  std::vector<std::byte> head(static_cast<size_t>(std::min(kLengthBytes, file.bytes())));
  RETURN_IF_ERROR(file.Read(0, head));
  const auto bytes = SafetensorsHeadBytes(head, file.bytes());
  if (!bytes.ok()) return Named(file, bytes.status());
  head.resize(static_cast<size_t>(*bytes));
  RETURN_IF_ERROR(file.Read(0, head));
  return head;
}

}  // namespace

std::optional<DataType> FloatTypeOf(const SafetensorsEntry& entry) {
  if (entry.dtype == "F32") return DataType::kFloat32;
  if (entry.dtype == "BF16") return DataType::kBFloat16;
  if (entry.dtype == "F16") return DataType::kFloat16;
  return std::nullopt;
}

int64_t SafetensorsEntry::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::string FormatTensorShape(std::span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<int64_t> SafetensorsHeadBytes(std::span<const std::byte> begin, int64_t file_bytes) {
  if (file_bytes < kLengthBytes || std::ssize(begin) < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file has ", file_bytes, " bytes, must have at least ", kLengthBytes));
  }
  uint64_t length = 0;
  for (int64_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint64_t>(begin[i]) << (8 * i);
  }
  const int64_t most = std::min(file_bytes - kLengthBytes, kMaxSafetensorsHeaderBytes);
  if (length > static_cast<uint64_t>(most)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the header has ", length, " bytes, must be at most ", most, " in a file of ", file_bytes));
  }
  return kLengthBytes + static_cast<int64_t>(length);
}

absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensors(std::span<const std::byte> head,
                                                               int64_t file_bytes) {
  ASSIGN_OR_RETURN(const int64_t begin, SafetensorsHeadBytes(head, file_bytes));
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + kLengthBytes,
                              static_cast<size_t>(begin - kLengthBytes));
  ASSIGN_OR_RETURN(const Json header, ParseWatchedJson(text, kWhat));
  if (!header.is_object()) return WrongType(kWhat, "an object", header);
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, object] : header.items()) {  // sorted by the JSON library
    if (name == kMetadata) continue;
    ASSIGN_OR_RETURN(entries.emplace_back(), ParseEntry(name, object, begin, file_bytes - begin));
  }
  RETURN_IF_ERROR(CheckTiling(entries, begin, file_bytes));
  return entries;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Read(ReadableFile file) {
  try {
    ASSIGN_OR_RETURN(auto head, ReadHead(file));
    auto entries = ParseSafetensors(head, file.bytes());
    if (!entries.ok()) return Named(file, entries.status());
    return SafetensorsFile(std::move(file), std::make_shared<const SafetensorsHead>(SafetensorsHead{
                                                std::move(head), *std::move(entries)}));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        absl::StrCat(file.path(), ": the memory does not suffice for its header"));
  }
}

const SafetensorsEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(
      entries(), name, {},
      [](const SafetensorsEntry& entry) { return std::string_view(entry.name); });
  return found == entries().end() || found->name != name ? nullptr : &*found;
}

absl::Status SafetensorsFile::CheckHead() const {
  ASSIGN_OR_RETURN(const auto head, ReadHead(file_));
  if (head == head_->bytes) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path(), " was changed while it was read"));
}

absl::Status SafetensorsFile::Widen(const SafetensorsEntry& entry, std::span<float> to) const {
  const std::optional<DataType> type = FloatTypeOf(entry);
  if (!type) {
    return Wrong(entry.name,
                 absl::StrCat("is of dtype ", entry.dtype, ", must be F32, BF16 or F16"));
  }
  if (*type == DataType::kFloat32) return file_.Read(entry.begin, std::as_writable_bytes(to));
  const int64_t element_bytes = ElementBytes(*type);
  std::vector<std::byte> piece;
  for (size_t done = 0; done < to.size(); done += kPieceElements) {
    const std::span<float> floats = to.subspan(done, std::min(kPieceElements, to.size() - done));
    piece.resize(floats.size() * static_cast<size_t>(element_bytes));
    RETURN_IF_ERROR(file_.Read(entry.begin + static_cast<int64_t>(done) * element_bytes, piece));
    for (size_t i = 0; i < floats.size(); ++i) {
      floats[i] = LoadElement(*type, piece.data(), static_cast<int64_t>(i));
    }
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring

#include "wire/npy_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::wire {
namespace {

static_assert(std::endian::native == std::endian::little, ".npy data are used as they lie");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr int kMaxAxes = 32;  // NumPy's limit

struct TypeRow {
  NpyType type;
  const char* descr;
  const char* name;
  int64_t bytes;
};

constexpr std::array<TypeRow, 10> kTypes = {{
    {NpyType::kFloat16, "<f2", "float16", 2},
    {NpyType::kFloat32, "<f4", "float32", 4},
    {NpyType::kFloat64, "<f8", "float64", 8},
    {NpyType::kRaw16, "|V2", "raw 16-bit", 2},
    {NpyType::kInt16, "<i2", "int16", 2},
    {NpyType::kUInt16, "<u2", "uint16", 2},
    {NpyType::kInt32, "<i4", "int32", 4},
    {NpyType::kUInt32, "<u4", "uint32", 4},
    {NpyType::kInt64, "<i8", "int64", 8},
    {NpyType::kUInt64, "<u8", "uint64", 8},
}};

const TypeRow& RowOf(NpyType type) { return kTypes[static_cast<size_t>(type)]; }

template <typename... Parts>
absl::Status Malformed(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(".npy header: ", parts...));
}

std::string Quoted(std::string_view text) {
  return absl::StrCat("'", absl::CHexEscape(std::string(text.substr(0, 64))), "'");
}

absl::StatusOr<NpyType> ParseDescr(std::string_view descr) {
  for (const TypeRow& row : kTypes) {
    if (descr == row.descr) return row.type;
  }
  if (descr == "<V2") return NpyType::kRaw16;
  if (!descr.empty() && descr.front() == '>') {
    return Malformed("descr ", Quoted(descr),
                     " is big-endian, only little-endian is read: convert it with array.astype(",
                     Quoted(absl::StrCat("<", std::string(descr.substr(1)))), ")");
  }
  return Malformed("descr ", Quoted(descr),
                   " is not known: expected one of <f4, <f2, |V2, <u2, <i2, <i4, <u4, <i8, <u8");
}

class Literal {
 public:
  explicit Literal(std::string_view text) : rest_(text) {}

  void SkipSpace() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n' ||
                              rest_.front() == '\t' || rest_.front() == '\r')) {
      rest_.remove_prefix(1);
    }
  }

  bool Take(char c) {
    SkipSpace();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  std::optional<std::string_view> String() {
    SkipSpace();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return std::nullopt;
    const size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view text = rest_.substr(1, end - 1);
    if (text.find('\\') != std::string_view::npos) return std::nullopt;
    rest_.remove_prefix(end + 1);
    return text;
  }

  std::optional<int64_t> Integer() {
    SkipSpace();
    int64_t value = 0;
    size_t digits = 0;
    while (digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9') {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, rest_[digits] - '0', &value)) {
        return std::nullopt;
      }
      ++digits;
    }
    if (digits == 0) return std::nullopt;
    rest_.remove_prefix(digits);
    return value;
  }

  bool AtEnd() {
    SkipSpace();
    return rest_.empty();
  }

  std::string Where() const { return Quoted(rest_.substr(0, 24)); }

 private:
  std::string_view rest_;
};

absl::StatusOr<std::vector<int64_t>> ParseShape(Literal& text) {
  if (!text.Take('(')) return Malformed("shape: expected a tuple at ", text.Where());
  std::vector<int64_t> shape;
  bool comma = true;
  while (!text.Take(')')) {
    if (!comma) return Malformed("shape: expected ',' or ')' at ", text.Where());
    const std::optional<int64_t> axis = text.Integer();
    if (!axis) {
      return Malformed("shape: axis ", shape.size(), ": expected a number of 0 to 2^63 - 1 at ",
                       text.Where());
    }
    if (shape.size() == kMaxAxes) return Malformed("shape: more than ", kMaxAxes, " axes");
    shape.push_back(*axis);
    comma = text.Take(',');
  }
  if (shape.size() == 1 && !comma) return Malformed("shape: a number in place of a tuple");
  return shape;
}

absl::StatusOr<NpyHeader> ParseDictionary(std::string_view dictionary) {
  Literal text(dictionary);
  std::optional<NpyType> type;
  std::optional<bool> fortran;
  std::optional<std::vector<int64_t>> shape;
  if (!text.Take('{')) return Malformed("expected a dictionary at ", text.Where());
  bool comma = true;
  while (!text.Take('}')) {
    if (!comma) return Malformed("expected ',' or '}' at ", text.Where());
    const std::optional<std::string_view> key = text.String();
    if (!key) return Malformed("expected a key at ", text.Where());
    if (!text.Take(':')) return Malformed(Quoted(*key), ": expected ':' at ", text.Where());
    if (*key == "descr" && !type) {
      const std::optional<std::string_view> descr = text.String();
      if (!descr) {
        return Malformed("descr: only plain numbers are read, no structures; found ", text.Where());
      }
      ASSIGN_OR_RETURN(type, ParseDescr(*descr));
    } else if (*key == "fortran_order" && !fortran) {
      if (text.TakeWord("True")) {
        fortran = true;
      } else if (text.TakeWord("False")) {
        fortran = false;
      } else {
        return Malformed("fortran_order: expected True or False at ", text.Where());
      }
    } else if (*key == "shape" && !shape) {
      ASSIGN_OR_RETURN(shape, ParseShape(text));
    } else {
      return Malformed("key ", Quoted(*key), " is not known, or given twice");
    }
    comma = text.Take(',');
  }
  if (!text.AtEnd()) return Malformed("text after the dictionary: ", text.Where());
  if (!type || !fortran || !shape) {
    return Malformed("key '",
                     !type      ? "descr"
                     : !fortran ? "fortran_order"
                                : "shape",
                     "' is missing");
  }
  NpyHeader header{.type = *type, .shape = *std::move(shape)};
  const auto axes = std::count_if(header.shape.begin(), header.shape.end(),
                                  [](int64_t size) { return size > 1; });
  header.fortran_order = *fortran && axes > 1;
  header.data_bytes = NpyItemBytes(header.type);
  for (int64_t axis : header.shape) {
    if (__builtin_mul_overflow(header.data_bytes, axis, &header.data_bytes)) {
      return Malformed("shape: ", FormatShape(header.shape), " takes more than 2^63 bytes");
    }
  }
  return header;
}

}  // namespace

int64_t NpyItemBytes(NpyType type) { return RowOf(type).bytes; }
const char* NpyTypeName(NpyType type) { return RowOf(type).name; }
const char* NpyDescr(NpyType type) { return RowOf(type).descr; }

bool MayHold(NpyType type, DataType dtype) {
  switch (type) {
    case NpyType::kFloat32:
      return dtype == DataType::kFloat32;
    case NpyType::kFloat16:
      return dtype == DataType::kFloat16;
    case NpyType::kRaw16:
    case NpyType::kInt16:
    case NpyType::kUInt16:
      return dtype == DataType::kBFloat16;
    default:
      return false;
  }
}

absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view file) {
  if (file.substr(0, kMagic.size()) != kMagic.substr(0, file.size()) || file.empty()) {
    return absl::InvalidArgumentError("not a .npy file: it does not start with \\x93NUMPY");
  }
  size_t at = kMagic.size() + 2;
  if (file.size() < at + 2) return Malformed("truncated: the file has ", file.size(), " bytes");
  const int major = static_cast<uint8_t>(file[at - 2]);
  const int minor = static_cast<uint8_t>(file[at - 1]);
  if (major < 1 || major > 3 || minor != 0) {
    return Malformed("version ", major, ".", minor, " is not known: expected 1.0, 2.0 or 3.0");
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  if (file.size() < at + length_bytes) {
    return Malformed("truncated: the file has ", file.size(), " bytes");
  }
  int64_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) {
    length |= static_cast<int64_t>(static_cast<uint8_t>(file[at + i])) << (8 * i);
  }
  at += length_bytes;
  if (length > kMaxNpyHeaderBytes) {
    return Malformed("length ", length, " is over the limit of ", kMaxNpyHeaderBytes, " bytes");
  }
  if (static_cast<int64_t>(file.size() - at) < length) {
    return Malformed("truncated: its length is ", length, " bytes, the file has ", file.size() - at,
                     " of them");
  }
  ASSIGN_OR_RETURN(NpyHeader header, ParseDictionary(file.substr(at, static_cast<size_t>(length))));
  header.data_offset = static_cast<int64_t>(at) + length;
  if (header.data_bytes > std::numeric_limits<int64_t>::max() - header.data_offset) {
    return Malformed("shape: ", FormatShape(header.shape), " takes more than 2^63 bytes");
  }
  return header;
}

std::string FormatNpyHeader(NpyType type, std::span<const int64_t> shape) {
  std::string dictionary =
      absl::StrCat("{'descr': '", NpyDescr(type),
                   "', 'fortran_order': False, 'shape': ", FormatShape(shape), ", }");
  constexpr size_t kPrefix = 10;  // magic, version, length
  constexpr size_t kAlignment = 64;
  const size_t total = (kPrefix + dictionary.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  dictionary.resize(total - kPrefix - 1, ' ');
  dictionary.push_back('\n');
  std::string header(kMagic);
  header.push_back(1);
  header.push_back(0);
  header.push_back(static_cast<char>(dictionary.size() & 0xff));
  header.push_back(static_cast<char>(dictionary.size() >> 8));
  return header + dictionary;
}

std::string FormatShape(std::span<const int64_t> shape) {
  std::string text = "(";
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    absl::StrAppend(&text, axis > 0 ? ", " : "", shape[axis]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace hilbert_ring::wire

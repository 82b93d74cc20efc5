#include "client/cpp/job_shape.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/errors.h"
#include "wire/codec.h"

namespace hilbert_ring::client {
namespace {

constexpr char kFloat32[] = "float32 ('<f4')";
constexpr char kFloat16[] = "float16 ('<f2')";
constexpr char kBFloat16[] = "bfloat16 as raw 16-bit ('|V2' or '<u2')";

const char* Expected(DataType dtype) {
  return dtype == DataType::kFloat32   ? kFloat32
         : dtype == DataType::kFloat16 ? kFloat16
                                       : kBFloat16;
}

std::string HasType(const NpyFile& file, v1::Tensor tensor) {
  return absl::StrCat(wire::TensorName(tensor), " has dtype ", wire::NpyTypeName(file.type()),
                      " ('", wire::NpyDescr(file.type()), "')");
}

std::vector<const char*> AxisNames(v1::Tensor tensor) {
  switch (tensor) {
    case v1::TENSOR_Q:
      return {"tokens", "heads", "head_dim"};
    case v1::TENSOR_K:
      return {"tokens", "kv_heads", "head_dim"};
    case v1::TENSOR_V:
      return {"tokens", "kv_heads", "value_dim"};
    case v1::TENSOR_OUT:
      return {"tokens", "heads", "value_dim"};
    case v1::TENSOR_LSE:
      return {"tokens", "heads"};
    default:
      return {};
  }
}

SpecShape ShapeOf(const JobSpec& spec) {
  return {.tokens = spec.tokens,
          .heads = spec.heads,
          .kv_heads = spec.kv_heads,
          .head_dim = spec.head_dim,
          .value_dim = spec.value_dim,
          .dtype = spec.dtype};
}

}  // namespace

JobShape::JobShape(const SpecShape& given, const std::string& source)
    : known_(given),
      fields_{{{"tokens", &SpecShape::tokens, ""},
               {"heads", &SpecShape::heads, ""},
               {"head_dim", &SpecShape::head_dim, ""},
               {"kv_heads", &SpecShape::kv_heads, ""},
               {"value_dim", &SpecShape::value_dim, ""}}} {
  for (Field& field : fields_) {
    if (known_.*field.value) field.source = source;
  }
  if (known_.dtype) dtype_source_ = source;
}

JobShape::JobShape(const JobSpec& spec) : JobShape(ShapeOf(spec), "the spec") {}

size_t JobShape::IndexOf(const char* name) const {
  size_t at = 0;
  while (std::strcmp(fields_[at].name, name) != 0) ++at;
  return at;
}

std::vector<int64_t> JobShape::SizesOf(v1::Tensor tensor) const {
  std::vector<int64_t> sizes;
  for (const char* name : AxisNames(tensor)) {
    sizes.push_back((known_.*fields_[IndexOf(name)].value).value());
  }
  return sizes;
}

absl::Status JobShape::LearnType(const NpyFile& file, v1::Tensor tensor) {
  if (known_.dtype) return absl::OkStatus();
  switch (file.type()) {
    case wire::NpyType::kFloat32:
      known_.dtype = DataType::kFloat32;
      break;
    case wire::NpyType::kFloat16:
      known_.dtype = DataType::kFloat16;
      break;
    case wire::NpyType::kRaw16:
      known_.dtype = DataType::kBFloat16;
      break;
    case wire::NpyType::kInt16:
    case wire::NpyType::kUInt16:
      return absl::OkStatus();
    default:
      return AtPath(file.path(),
                    absl::InvalidArgumentError(absl::StrCat(
                        HasType(file, tensor), ", expected ", kFloat32, ", ", kFloat16, " or ",
                        kBFloat16, "; convert it with array.astype('float32')")));
  }
  dtype_source_ = file.path();
  return absl::OkStatus();
}

absl::Status JobShape::CheckTypeKnown(const NpyFile& file, v1::Tensor tensor) const {
  if (known_.dtype) return absl::OkStatus();
  return AtPath(
      file.path(),
      absl::InvalidArgumentError(absl::StrCat(
          HasType(file, tensor),
          ", which may be bfloat16's bits or integers: give the dtype (--dtype bfloat16)")));
}

absl::Status JobShape::Take(const NpyFile& file, v1::Tensor tensor) {
  if (absl::Status status = CheckType(file, tensor); !status.ok()) {
    return AtPath(file.path(), status);
  }
  if (file.fortran_order()) {
    return AtPath(file.path(),
                  absl::InvalidArgumentError(absl::StrCat(
                      wire::TensorName(tensor), " of shape ", wire::FormatShape(file.shape()),
                      " is in Fortran order, expected C order: save it with "
                      "numpy.save(path, numpy.ascontiguousarray(array))")));
  }
  return AtPath(file.path(), TakeAxes(file, tensor));
}

absl::Status JobShape::CheckType(const NpyFile& file, v1::Tensor tensor) const {
  const wire::NpyType type = file.type();
  const bool output = tensor == v1::TENSOR_OUT || tensor == v1::TENSOR_LSE;
  const DataType known = known_.dtype.value_or(DataType::kFloat32);
  const DataType dtype = tensor == v1::TENSOR_LSE ? DataType::kFloat32 : known;
  if (wire::MayHold(type, dtype) || (output && type == wire::NpyType::kFloat64))
    return absl::OkStatus();
  std::string advice;
  if (type == wire::NpyType::kFloat64) {
    advice =
        absl::StrCat("; convert it with array.astype('", std::string(DataTypeName(known)), "')");
  }
  return absl::InvalidArgumentError(
      absl::StrCat(HasType(file, tensor), ", must be ", Expected(dtype), " with dtype ",
                   std::string(DataTypeName(known)), " of ", dtype_source_, advice));
}

absl::Status JobShape::TakeAxes(const NpyFile& file, v1::Tensor tensor) {
  const std::vector<const char*> names = AxisNames(tensor);
  const std::vector<int64_t>& shape = file.shape();
  if (shape.size() != names.size()) {
    std::vector<std::string> sizes;
    bool some_known = false;
    for (const char* name : names) {
      const std::optional<int64_t> size = known_.*fields_[IndexOf(name)].value;
      some_known |= size.has_value();
      sizes.push_back(size ? absl::StrCat(*size) : name);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        wire::TensorName(tensor), " has shape ", wire::FormatShape(shape), ", expected ",
        some_known ? absl::StrCat("(", absl::StrJoin(sizes, ", "), "): ") : "", "[",
        absl::StrJoin(names, ", "), "]"));
  }
  for (size_t axis = 0; axis < names.size(); ++axis) {
    Field& field = fields_[IndexOf(names[axis])];
    std::optional<int64_t>& size = known_.*field.value;
    if (!size) {
      size = shape[axis];
      field.source = file.path();
      field.from_file = true;
    } else if (*size != shape[axis]) {
      return absl::InvalidArgumentError(absl::StrCat(
          field.name, " of ", wire::TensorName(tensor), " is ", shape[axis], " (axis ", axis,
          " of shape ", wire::FormatShape(shape), "), must be ", *size, " (", field.source, ")"));
    }
  }
  return absl::OkStatus();
}

std::string JobShape::ToldByFiles() const {
  std::string text, last;
  for (const Field& field : fields_) {
    if (!field.from_file) continue;
    // Fields come in the order of q, k and v, so that a file's fields are adjacent.
    absl::StrAppend(&text, field.source == last ? ", " : absl::StrCat("; ", field.source, " has "),
                    field.name, " ", *(known_.*field.value));
    last = field.source;
  }
  return text;
}

}  // namespace hilbert_ring::client

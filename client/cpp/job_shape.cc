#include "client/cpp/job_shape.h"

#include <algorithm>

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

struct Axis {
  absl::string_view name;
  std::optional<int64_t> SpecShape::*size;
};

std::vector<Axis> AxesOf(v1::Tensor tensor) {
  const bool of_kv = tensor == v1::TENSOR_K || tensor == v1::TENSOR_V;
  std::vector<Axis> axes = {
      of_kv ? Axis{"key_tokens", &SpecShape::key_tokens} : Axis{"tokens", &SpecShape::tokens},
      of_kv ? Axis{"kv_heads", &SpecShape::kv_heads} : Axis{"heads", &SpecShape::heads}};
  if (tensor == v1::TENSOR_LSE) return axes;
  const bool wide = tensor == v1::TENSOR_V || tensor == v1::TENSOR_OUT;
  axes.push_back(wide ? Axis{"value_dim", &SpecShape::value_dim}
                      : Axis{"head_dim", &SpecShape::head_dim});
  return axes;
}

SpecShape ShapeOf(const JobSpec& spec) {
  return {.tokens = spec.tokens,
          .key_tokens = KeyTokens(spec),
          .heads = spec.heads,
          .kv_heads = spec.kv_heads,
          .head_dim = spec.head_dim,
          .value_dim = spec.value_dim,
          .dtype = spec.dtype};
}

}  // namespace

std::optional<DataType> FloatTypeOf(wire::NpyType type) {
  switch (type) {
    case wire::NpyType::kFloat32:
      return DataType::kFloat32;
    case wire::NpyType::kFloat16:
      return DataType::kFloat16;
    case wire::NpyType::kRaw16:
      return DataType::kBFloat16;
    default:
      return std::nullopt;
  }
}

std::vector<int64_t> TensorShape(const JobSpec& spec, v1::Tensor tensor) {
  const SpecShape known = ShapeOf(spec);
  std::vector<int64_t> shape;
  for (const Axis& axis : AxesOf(tensor)) shape.push_back(*(known.*axis.size));
  return shape;
}

JobShape::JobShape(const JobSpec& spec) : JobShape(ShapeOf(spec), "the spec") {}

absl::Status JobShape::LearnType(const NpyFile& file, v1::Tensor tensor) {
  const wire::NpyType type = file.type();
  if (known_.dtype || type == wire::NpyType::kInt16 || type == wire::NpyType::kUInt16) {
    return absl::OkStatus();
  }
  known_.dtype = FloatTypeOf(type);
  dtype_source_ = file.path();
  if (known_.dtype) return absl::OkStatus();
  return AtPath(file.path(), absl::InvalidArgumentError(absl::StrCat(
                                 HasType(file, tensor), ", expected ", kFloat32, ", ", kFloat16,
                                 " or ", kBFloat16, "; convert it with array.astype('float32')")));
}

absl::Status JobShape::Take(const NpyFile& file, v1::Tensor tensor) {
  absl::Status status = CheckType(file, tensor);
  if (status.ok() && file.fortran_order()) {
    status = absl::InvalidArgumentError(
        absl::StrCat(wire::TensorName(tensor), " of shape ", wire::FormatShape(file.shape()),
                     " is in Fortran order, expected C order: save it with "
                     "numpy.save(path, numpy.ascontiguousarray(array))"));
  }
  if (status.ok()) status = TakeAxes(file, tensor);
  return AtPath(file.path(), status);
}

absl::Status JobShape::CheckType(const NpyFile& file, v1::Tensor tensor) const {
  if (!known_.dtype) {
    return absl::InvalidArgumentError(absl::StrCat(
        HasType(file, tensor),
        ", which may be bfloat16's bits or integers: give the dtype (--dtype bfloat16)"));
  }
  const wire::NpyType type = file.type();
  const bool output = tensor == v1::TENSOR_OUT || tensor == v1::TENSOR_LSE;
  const DataType dtype = tensor == v1::TENSOR_LSE ? DataType::kFloat32 : *known_.dtype;
  if (wire::MayHold(type, dtype) || (output && type == wire::NpyType::kFloat64)) {
    return absl::OkStatus();
  }
  const std::string known(DataTypeName(*known_.dtype));
  return absl::InvalidArgumentError(
      absl::StrCat(HasType(file, tensor), ", must be ", Expected(dtype), " with dtype ", known,
                   " of ", dtype_source_,
                   type == wire::NpyType::kFloat64
                       ? absl::StrCat("; convert it with array.astype('", known, "')")
                       : ""));
}

absl::Status JobShape::TakeAxes(const NpyFile& file, v1::Tensor tensor) {
  const std::vector<Axis> axes = AxesOf(tensor);
  const std::vector<int64_t>& shape = file.shape();
  if (shape.size() != axes.size()) {
    std::vector<std::string> sizes;
    std::vector<absl::string_view> names;
    bool some_known = false;
    for (const Axis& axis : axes) {
      const std::optional<int64_t> size = known_.*axis.size;
      some_known |= size.has_value();
      sizes.push_back(size ? absl::StrCat(*size) : std::string(axis.name));
      names.push_back(axis.name);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        wire::TensorName(tensor), " has shape ", wire::FormatShape(shape), ", expected ",
        some_known ? absl::StrCat("(", absl::StrJoin(sizes, ", "), "): ") : "", "[",
        absl::StrJoin(names, ", "), "]"));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    std::optional<int64_t>& size = known_.*axes[i].size;
    if (!size) {
      size = shape[i];
      from_files_.push_back({axes[i].name, *size, file.path()});
    } else if (*size != shape[i]) {
      const auto learned = std::ranges::find(from_files_, axes[i].name, &Learned::axis);
      return absl::InvalidArgumentError(
          absl::StrCat(axes[i].name, " of ", wire::TensorName(tensor), " is ", shape[i], " (axis ",
                       i, " of shape ", wire::FormatShape(shape), "), must be ", *size, " (",
                       learned == from_files_.end() ? source_ : learned->path, ")"));
    }
  }
  return absl::OkStatus();
}

std::string JobShape::ToldByFiles() const {
  std::string text, last;
  for (const auto& [axis, size, path] : from_files_) {
    absl::StrAppend(&text, path == last ? ", " : absl::StrCat("; ", path, " has "), axis, " ",
                    size);
    last = path;
  }
  return text;
}

}  // namespace hilbert_ring::client

#include "client/cpp/job_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/at_path.h"
#include "wire/codec.h"

namespace hilbert_ring::client {
namespace {

absl::StatusOr<std::string> ReadText(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot open"));
  const absl::Cleanup close_file = [fd] { close(fd); };
  std::string text;
  char part[1 << 16];
  while (true) {
    const ssize_t bytes = read(fd, part, sizeof(part));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot read"));
    if (bytes == 0) return text;
    text.append(part, static_cast<size_t>(bytes));
  }
}

struct Axis {
  const char* name;
  int64_t size;
};

std::vector<Axis> Axes(const JobSpec& spec, v1::Tensor tensor) {
  const Axis tokens{"tokens", spec.tokens};
  switch (tensor) {
    case v1::TENSOR_Q:
      return {tokens, {"heads", spec.heads}, {"head_dim", spec.head_dim}};
    case v1::TENSOR_K:
      return {tokens, {"kv_heads", spec.kv_heads}, {"head_dim", spec.head_dim}};
    case v1::TENSOR_V:
      return {tokens, {"kv_heads", spec.kv_heads}, {"value_dim", spec.value_dim}};
    case v1::TENSOR_OUT:
      return {tokens, {"heads", spec.heads}, {"value_dim", spec.value_dim}};
    case v1::TENSOR_LSE:
      return {tokens, {"heads", spec.heads}};
    default:
      return {};
  }
}

bool IsBFloat16(NpyType type) {
  return type == NpyType::kRaw16 || type == NpyType::kInt16 || type == NpyType::kUInt16;
}

absl::Status CheckType(const NpyFile& file, const JobSpec& spec, v1::Tensor tensor) {
  const NpyType type = file.type();
  const bool output = tensor == v1::TENSOR_OUT || tensor == v1::TENSOR_LSE;
  const DataType dtype = tensor == v1::TENSOR_LSE ? DataType::kFloat32 : spec.dtype;
  if (output && type == NpyType::kFloat64) return absl::OkStatus();
  std::string expected;
  switch (dtype) {
    case DataType::kFloat32:
      if (type == NpyType::kFloat32) return absl::OkStatus();
      expected = "float32 ('<f4')";
      break;
    case DataType::kFloat16:
      if (type == NpyType::kFloat16) return absl::OkStatus();
      expected = "float16 ('<f2')";
      break;
    case DataType::kBFloat16:
      if (IsBFloat16(type)) return absl::OkStatus();
      expected = "bfloat16 as raw 16-bit ('|V2' or '<u2')";
      break;
  }
  std::string advice;
  if (type == NpyType::kFloat64) {
    advice =
        absl::StrCat("; convert it with array.astype('", std::string(DataTypeName(dtype)), "')");
  } else if (tensor != v1::TENSOR_LSE) {
    advice = "; or name the file's dtype in the spec";
  }
  return absl::InvalidArgumentError(
      absl::StrCat(wire::TensorName(tensor), " has dtype ", NpyTypeName(type), " ('",
                   NpyDescr(type), "'), the spec's dtype is ",
                   std::string(DataTypeName(spec.dtype)), ": expected ", expected, advice));
}

absl::Status CheckShape(const NpyFile& file, const JobSpec& spec, v1::Tensor tensor) {
  const std::vector<Axis> axes = Axes(spec, tensor);
  const std::vector<int64_t>& shape = file.shape();
  if (shape.size() != axes.size()) {
    std::string names;
    for (const Axis& axis : axes) absl::StrAppend(&names, names.empty() ? "" : ", ", axis.name);
    return absl::InvalidArgumentError(
        absl::StrCat(wire::TensorName(tensor), " has shape ", FormatShape(shape), ", expected ",
                     FormatShape(TensorShape(spec, tensor)), ": [", names, "]"));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (shape[i] != axes[i].size) {
      return absl::InvalidArgumentError(
          absl::StrCat(wire::TensorName(tensor), " has ", shape[i], " ", axes[i].name, " (axis ", i,
                       " of shape ", FormatShape(shape), "), the spec says ", axes[i].size));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Coordinates>> FindCoordinates(JobSpecDocument& document,
                                                           const std::string& spec_path,
                                                           const std::string& coords_path,
                                                           CoordinatesUse use) {
  JobSpec& spec = document.spec;
  const bool wanted = spec.ordering && spec.ordering->coordinate_axes != 0;
  if (!coords_path.empty()) {
    if (!wanted) {
      return absl::InvalidArgumentError(
          absl::StrCat(coords_path, ": the ordering in ", spec_path,
                       " has no coordinates; announce them with \"coords_file\""));
    }
    if (!document.coords.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(coords_path, ": ", spec_path, " has ordering.coords too; give one of them"));
    }
    absl::StatusOr<NpyFile> file = NpyFile::Open(coords_path);
    if (!file.ok()) return file.status();
    absl::StatusOr<Coordinates> coordinates = Coordinates::FromFile(*std::move(file), spec.tokens);
    if (!coordinates.ok()) return coordinates.status();
    spec.ordering->coordinate_axes = coordinates->axes();
    return *std::move(coordinates);
  }
  if (!wanted) return std::nullopt;
  if (document.coords.empty()) {
    if (use == CoordinatesUse::kOptional) return std::nullopt;
    return absl::InvalidArgumentError(absl::StrCat(
        spec_path, ": ordering.coords_file: give the file of the coordinates with --coords"));
  }
  absl::StatusOr<Coordinates> coordinates = Coordinates::FromRows(
      std::move(document.coords), spec.tokens, spec.ordering->coordinate_axes);
  if (!coordinates.ok()) return AtPath(spec_path, coordinates.status());
  return *std::move(coordinates);
}

}  // namespace

absl::StatusOr<Job> ReadJob(const std::string& spec_path, const std::string& coords_path,
                            CoordinatesUse use) {
  const absl::StatusOr<std::string> text = ReadText(spec_path);
  if (!text.ok()) return text.status();
  absl::StatusOr<JobSpecDocument> document = ParseJobSpec(*text);
  if (!document.ok()) return AtPath(spec_path, document.status());
  if (absl::Status valid = Validate(document->spec); !valid.ok()) return AtPath(spec_path, valid);
  absl::StatusOr<std::optional<Coordinates>> coordinates =
      FindCoordinates(*document, spec_path, coords_path, use);
  if (!coordinates.ok()) return coordinates.status();
  return Job{std::move(document->spec), *std::move(coordinates)};
}

std::vector<int64_t> TensorShape(const JobSpec& spec, v1::Tensor tensor) {
  std::vector<int64_t> shape;
  for (const Axis& axis : Axes(spec, tensor)) shape.push_back(axis.size);
  return shape;
}

absl::StatusOr<NpyFile> OpenTensor(const std::string& path, const JobSpec& spec,
                                   v1::Tensor tensor) {
  absl::StatusOr<NpyFile> file = NpyFile::Open(path);
  if (!file.ok()) return file.status();
  if (absl::Status status = CheckType(*file, spec, tensor); !status.ok()) {
    return AtPath(path, status);
  }
  if (absl::Status status = CheckShape(*file, spec, tensor); !status.ok()) {
    return AtPath(path, status);
  }
  return file;
}

NpyType OutputType(const JobSpec& spec, NpyType q_type) {
  switch (spec.dtype) {
    case DataType::kFloat16:
      return NpyType::kFloat16;
    case DataType::kBFloat16:
      return IsBFloat16(q_type) ? q_type : NpyType::kRaw16;
    case DataType::kFloat32:
      break;
  }
  return NpyType::kFloat32;
}

}  // namespace hilbert_ring::client

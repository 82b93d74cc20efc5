#include "client/cpp/handed.h"

#include <sys/stat.h>

#include <algorithm>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/scratch.h"
#include "client/cpp/service.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/npy_header.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

constexpr char kOut[] = "out";
constexpr char kLse[] = "lse";

struct Handed {
  Scratch scratch;
  std::vector<v1::TensorFile> files;  // as Open names them
};

v1::TensorFile RawFile(v1::Tensor tensor, const std::string& path, DataType dtype,
                       std::initializer_list<int64_t> shape) {
  v1::TensorFile file;
  file.set_tensor(tensor);
  file.set_path(path);
  file.mutable_raw()->mutable_shape()->Assign(shape.begin(), shape.end());
  file.mutable_raw()->set_dtype(wire::EncodeDataType(dtype));
  return file;
}

absl::StatusOr<v1::TensorFile> WriteCoordinates(const AttendInputs& inputs,
                                                const Scratch& scratch) {
  constexpr int64_t kRows = 1 << 18;  // at once
  constexpr char kName[] = "coords.npy";
  const int64_t axes = inputs.spec.ordering->coordinate_axes;
  const std::vector<int64_t> shape = {inputs.spec.tokens, axes};
  const std::string header = wire::FormatNpyHeader(wire::NpyType::kUInt32, shape);
  RETURN_IF_ERROR(scratch.Write(kName, std::as_bytes(std::span(header))));
  std::vector<uint32_t> values;
  for (int64_t first = 0; first < inputs.spec.tokens; first += kRows) {
    values.resize(static_cast<size_t>(std::min(kRows, inputs.spec.tokens - first) * axes));
    inputs.coordinates(first, values);
    RETURN_IF_ERROR(scratch.Write(kName, std::as_bytes(std::span(values))));
  }
  v1::TensorFile file;
  file.set_tensor(v1::TENSOR_COORDS);
  file.set_path(scratch.path(kName));
  return file;
}

absl::StatusOr<Handed> Hand(const std::string& server, const AttendInputs& inputs,
                            const AttendOutputs& outputs, int64_t bytes,
                            const AttendOptions& options, const HandedOptions& handed) {
  ASSIGN_OR_RETURN(const SeenFolder seen, FindFolder(Connect(server, options.access), handed.root));
  RETURN_IF_ERROR(CheckMemoryRoom(seen.path, bytes));
  struct stat mark = {};
  if (stat(seen.mark_path.c_str(), &mark) != 0) return absl::ErrnoToStatus(errno, seen.mark_path);
  ASSIGN_OR_RETURN(Scratch scratch, Scratch::Make(seen.path, mark.st_uid));
  Handed made{.scratch = std::move(scratch), .files = {}};
  const JobSpec& spec = inputs.spec;
  if (spec.ordering && spec.ordering->coordinate_axes > 0) {
    ASSIGN_OR_RETURN(const v1::TensorFile coordinates, WriteCoordinates(inputs, made.scratch));
    made.files.push_back(coordinates);
  }
  RETURN_IF_ERROR(made.scratch.Write("q", inputs.q));
  RETURN_IF_ERROR(made.scratch.Write("k", inputs.k));
  RETURN_IF_ERROR(made.scratch.Write("v", inputs.v));
  const int64_t tokens = spec.tokens;
  const auto add = [&](v1::Tensor tensor, const char* name, DataType dtype,
                       std::initializer_list<int64_t> shape) {
    made.files.push_back(RawFile(tensor, made.scratch.path(name), dtype, shape));
  };
  add(v1::TENSOR_Q, "q", spec.dtype, {tokens, spec.heads, spec.head_dim});
  add(v1::TENSOR_K, "k", spec.dtype, {tokens, spec.kv_heads, spec.head_dim});
  add(v1::TENSOR_V, "v", spec.dtype, {tokens, spec.kv_heads, spec.value_dim});
  add(v1::TENSOR_OUT, kOut, spec.dtype, {tokens, spec.heads, spec.value_dim});
  if (!outputs.lse.empty()) add(v1::TENSOR_LSE, kLse, DataType::kFloat32, {tokens, spec.heads});
  return made;
}

// A job that failed so may be done where its tensors are sent.
bool MaySendHanded(const absl::Status& failure) {
  return MaySend(failure) || wire::HasReason(failure, wire::reason::kFileNoSpace) ||
         wire::HasReason(failure, wire::reason::kFileIo);
}

}  // namespace

absl::StatusOr<v1::Report> AttendHanded(const std::string& server, const AttendInputs& inputs,
                                        const AttendOutputs& outputs, const AttendOptions& options,
                                        const HandedOptions& handed) {
  RETURN_IF_ERROR(CheckInputs(inputs));
  const int64_t bytes = std::ssize(inputs.q) + std::ssize(inputs.k) + std::ssize(inputs.v) +
                        std::ssize(outputs.out) + std::ssize(outputs.lse);
  const auto send = [&](const absl::Status& why) {
    if (handed.sent && !why.ok()) handed.sent(why);
    return Attend(server, inputs, outputs, options);
  };
  if (bytes < handed.least_bytes) return send(absl::OkStatus());
  const absl::StatusOr<Handed> made = Hand(server, inputs, outputs, bytes, options, handed);
  if (!made.ok()) return send(made.status());
  AttendOptions in_files = options;
  in_files.final = [&options](const absl::Status& failure) {
    return MaySendHanded(failure) || (options.final && options.final(failure));
  };
  absl::StatusOr<v1::Report> report = AttendInFiles(server, inputs.spec, made->files, in_files);
  if (!report.ok()) return MaySendHanded(report.status()) ? send(report.status()) : report;
  RETURN_IF_ERROR(made->scratch.Read(kOut, outputs.out));
  if (!outputs.lse.empty()) RETURN_IF_ERROR(made->scratch.Read(kLse, outputs.lse));
  return report;
}

}  // namespace hilbert_ring::client

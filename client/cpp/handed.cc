#include "client/cpp/handed.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/cpp/scratch.h"
#include "client/cpp/service.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/npy_header.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

struct Rows {
  v1::Tensor tensor = v1::TENSOR_UNSPECIFIED;
  DataType dtype = DataType::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

struct Coordinates {
  v1::Tensor tensor = v1::TENSOR_UNSPECIFIED;
  wire::NpyType type = wire::NpyType::kUInt32;
  int64_t rows = 0, axes = 0;
  // Fills [rows, axes] from first_row on.
  std::function<void(int64_t first_row, std::span<std::byte> to)> read;

  int64_t row_bytes() const { return axes * wire::NpyItemBytes(type); }
};

struct Output {
  v1::Tensor tensor = v1::TENSOR_UNSPECIFIED;
  DataType dtype = DataType::kFloat32;
  std::vector<int64_t> shape;
  std::span<std::byte> to;
};

// What a job would send and receive as chunks, and has in scratch files in place of that.
struct HandedTensors {
  std::optional<Coordinates> coordinates;
  std::vector<Rows> inputs;
  std::vector<Output> outputs;

  int64_t bytes() const {
    int64_t sum = coordinates ? coordinates->rows * coordinates->row_bytes() : 0;
    for (const Rows& input : inputs) sum += std::ssize(input.bytes);
    for (const Output& output : outputs) sum += std::ssize(output.to);
    return sum;
  }
};

// The two calls that do one job.
struct Ways {
  std::function<absl::StatusOr<v1::Report>(const std::vector<v1::TensorFile>&, const JobOptions&)>
      in_files;
  std::function<absl::StatusOr<v1::Report>(const JobOptions&)> send;
};

struct Handed {
  Scratch scratch;
  std::vector<v1::TensorFile> files;  // as Open names them
};

v1::TensorFile FileOf(const Scratch& scratch, v1::Tensor tensor) {
  v1::TensorFile file;
  file.set_tensor(tensor);
  file.set_path(scratch.path(wire::TensorName(tensor)));
  return file;
}

v1::TensorFile RawFileOf(const Scratch& scratch, v1::Tensor tensor, DataType dtype,
                         const std::vector<int64_t>& shape) {
  v1::TensorFile file = FileOf(scratch, tensor);
  file.mutable_raw()->mutable_shape()->Assign(shape.begin(), shape.end());
  file.mutable_raw()->set_dtype(wire::EncodeDataType(dtype));
  return file;
}

// As .npy: raw files have no integers and no float64.
absl::Status WriteCoordinates(const Coordinates& coordinates, const Scratch& scratch) {
  constexpr int64_t kRows = 1 << 18;  // at once
  const std::string name = wire::TensorName(coordinates.tensor);
  const std::vector<int64_t> shape = {coordinates.rows, coordinates.axes};
  const std::string header = wire::FormatNpyHeader(coordinates.type, shape);
  RETURN_IF_ERROR(scratch.Write(name, std::as_bytes(std::span(header))));
  std::vector<std::byte> block;
  for (int64_t first = 0; first < coordinates.rows; first += kRows) {
    const int64_t rows = std::min(kRows, coordinates.rows - first);
    block.resize(static_cast<size_t>(rows * coordinates.row_bytes()));
    coordinates.read(first, block);
    RETURN_IF_ERROR(scratch.Write(name, block));
  }
  return absl::OkStatus();
}

absl::StatusOr<Handed> Hand(const std::string& server, const HandedTensors& tensors,
                            const Access& access, const DataRootOptions& root) {
  ASSIGN_OR_RETURN(const SeenFolder seen, FindFolder(Connect(server, access), root));
  RETURN_IF_ERROR(CheckMemoryRoom(seen.path, tensors.bytes()));
  struct stat mark = {};
  if (stat(seen.mark_path.c_str(), &mark) != 0) return absl::ErrnoToStatus(errno, seen.mark_path);
  ASSIGN_OR_RETURN(Scratch scratch, Scratch::Make(seen.path, mark.st_uid));
  Handed made{.scratch = std::move(scratch), .files = {}};
  if (tensors.coordinates) {
    RETURN_IF_ERROR(WriteCoordinates(*tensors.coordinates, made.scratch));
    made.files.push_back(FileOf(made.scratch, tensors.coordinates->tensor));
  }
  for (const Rows& input : tensors.inputs) {
    RETURN_IF_ERROR(made.scratch.Write(wire::TensorName(input.tensor), input.bytes));
    made.files.push_back(RawFileOf(made.scratch, input.tensor, input.dtype, input.shape));
  }
  for (const Output& output : tensors.outputs) {
    made.files.push_back(RawFileOf(made.scratch, output.tensor, output.dtype, output.shape));
  }
  return made;
}

// A job that failed so may be done where its tensors are sent.
bool MaySendHanded(const absl::Status& failure) {
  return MaySend(failure) || wire::HasReason(failure, wire::reason::kFileNoSpace) ||
         wire::HasReason(failure, wire::reason::kFileIo);
}

// What time handing over took counts against the job's deadline.
absl::StatusOr<v1::Report> HandOrSend(const std::string& server, const HandedTensors& tensors,
                                      const Ways& ways, const JobOptions& options,
                                      const HandedOptions& handed) {
  const CallTiming timing = WithDefaults(options.timing);
  const absl::Time begun = timing.now();
  const auto from_now = [&] {
    JobOptions rest = options;
    rest.spent += timing.now() - begun;
    return rest;
  };
  const auto send = [&](const absl::Status& why) {
    if (handed.sent && !why.ok()) handed.sent(why);
    return ways.send(from_now());
  };
  if (tensors.bytes() < handed.least_bytes) return send(absl::OkStatus());
  DataRootOptions root = handed.root;
  root.deadline = std::min(root.deadline, options.deadline - options.spent);
  absl::StatusOr<Handed> made = Hand(server, tensors, options.access, root);
  if (!made.ok()) return send(made.status());
  JobOptions in_files = from_now();
  in_files.final = [&options](const absl::Status& failure) {
    return MaySendHanded(failure) || (options.final && options.final(failure));
  };
  absl::StatusOr<v1::Report> report = ways.in_files(made->files, in_files);
  if (!report.ok()) {
    if (!MaySendHanded(report.status())) return report;
    made = report.status();  // the files go: a job that is sent may need their memory
    return send(report.status());
  }
  for (const Output& output : tensors.outputs) {
    RETURN_IF_ERROR(made->scratch.Read(wire::TensorName(output.tensor), output.to));
  }
  return report;
}

// `fill` takes numbers where the files' rows are bytes.
template <typename Number>
auto ReaderOf(const std::function<void(int64_t first_row, std::span<Number> values)>& fill) {
  return [&fill](int64_t first_row, std::span<std::byte> to) {
    // Aligned: the memory is a vector's of its own.
    fill(first_row, {reinterpret_cast<Number*>(to.data()), to.size() / sizeof(Number)});
  };
}

HandedTensors TensorsOf(const AttendInputs& inputs, const AttendOutputs& outputs) {
  const JobSpec& spec = inputs.spec;
  HandedTensors tensors;
  if (spec.ordering && spec.ordering->coordinate_axes > 0) {
    tensors.coordinates = {.tensor = v1::TENSOR_COORDS,
                           .type = wire::NpyType::kUInt32,
                           .rows = spec.tokens,
                           .axes = spec.ordering->coordinate_axes,
                           .read = ReaderOf(inputs.coordinates)};
  }
  tensors.inputs = {
      {v1::TENSOR_Q, spec.dtype, {spec.tokens, spec.heads, spec.head_dim}, inputs.q},
      {v1::TENSOR_K, spec.dtype, {spec.tokens, spec.kv_heads, spec.head_dim}, inputs.k},
      {v1::TENSOR_V, spec.dtype, {spec.tokens, spec.kv_heads, spec.value_dim}, inputs.v}};
  tensors.outputs = {
      {v1::TENSOR_OUT, spec.dtype, {spec.tokens, spec.heads, spec.value_dim}, outputs.out}};
  if (!outputs.lse.empty()) {
    tensors.outputs.push_back(
        {v1::TENSOR_LSE, DataType::kFloat32, {spec.tokens, spec.heads}, outputs.lse});
  }
  return tensors;
}

HandedTensors TensorsOf(const EncodeInputs& inputs, const EncodeResults& results) {
  const EncodeJob& job = inputs.job;
  HandedTensors tensors;
  if (job.config.position) {
    tensors.coordinates = {.tensor = v1::TENSOR_TILE_COORDS,
                           .type = wire::NpyType::kFloat64,
                           .rows = job.tiles(),
                           .axes = 2,
                           .read = ReaderOf(inputs.coordinates)};
  }
  tensors.inputs = {
      {v1::TENSOR_TILES, job.dtype, {job.tiles(), job.config.tile_dim()}, inputs.tiles}};
  if (job.outputs.pooling == Pooling::kNone) {
    tensors.outputs.push_back(
        {v1::TENSOR_STATES, DataType::kFloat32, job.RowsShape(), results.rows});
  }
  if (job.outputs.attention_map) {
    tensors.outputs.push_back(
        {v1::TENSOR_ATTENTION_MAP, DataType::kFloat32, job.MapShape(), results.attention_map});
  }
  return tensors;
}

}  // namespace

absl::StatusOr<v1::Report> AttendHanded(const std::string& server, const AttendInputs& inputs,
                                        const AttendOutputs& outputs, const AttendOptions& options,
                                        const HandedOptions& handed) {
  RETURN_IF_ERROR(CheckInputs(inputs));
  RETURN_IF_ERROR(CheckOutputs(inputs.spec, outputs));
  const Ways ways{
      .in_files =
          [&](const std::vector<v1::TensorFile>& files, const JobOptions& rest) {
            return AttendInFiles(server, inputs.spec, files, rest);
          },
      .send = [&](const JobOptions& rest) { return Attend(server, inputs, outputs, rest); }};
  return HandOrSend(server, TensorsOf(inputs, outputs), ways, options, handed);
}

absl::StatusOr<v1::Report> EncodeHanded(const std::string& server, const EncodeInputs& inputs,
                                        const EncodeResults& results, const JobOptions& options,
                                        const HandedOptions& handed) {
  RETURN_IF_ERROR(CheckEncode(inputs));
  RETURN_IF_ERROR(CheckResults(inputs.job, results));
  const Ways ways{
      .in_files =
          [&](const std::vector<v1::TensorFile>& files, const JobOptions& rest) {
            return EncodeInFiles(server, inputs, files, results, rest);
          },
      .send = [&](const JobOptions& rest) { return Encode(server, inputs, results, rest); }};
  return HandOrSend(server, TensorsOf(inputs, results), ways, options, handed);
}

}  // namespace hilbert_ring::client

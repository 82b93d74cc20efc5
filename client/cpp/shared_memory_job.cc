#include "client/cpp/shared_memory_job.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/cpp/conversation.h"
#include "client/cpp/job_request.h"
#include "client/cpp/scratch.h"
#include "client/cpp/service.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"
#include "wire/npy_header.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

// Returns whether the output lies in a file; the few pooled vectors are sent.
bool Shared(const OutputTensor& output) { return output.tensor != v1::TENSOR_POOLED; }

int64_t SharedBytes(const JobTensors& tensors) {
  int64_t bytes = tensors.input_bytes();
  for (const OutputTensor& output : tensors.outputs) {
    if (Shared(output)) bytes += std::ssize(output.data);
  }
  return bytes;
}

struct ScratchFiles {
  Scratch scratch;
  std::vector<v1::TensorFile> files;
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

// Writes .npy, because raw files have no integers and no float64.
absl::Status WriteCoordinates(const InputTensor& coordinates, const Scratch& scratch) {
  constexpr int64_t kRows = 1 << 18;
  const std::string name = wire::TensorName(coordinates.tensor);
  const wire::NpyType type = coordinates.tensor == v1::TENSOR_TILE_COORDS ? wire::NpyType::kFloat64
                             : coordinates.tensor == v1::TENSOR_BIAS_COORDS
                                 ? wire::NpyType::kFloat32
                                 : wire::NpyType::kUInt32;
  const std::string header = wire::FormatNpyHeader(type, coordinates.shape);
  RETURN_IF_ERROR(scratch.Write(name, std::as_bytes(std::span(header))));
  std::vector<std::byte> block;
  for (int64_t first = 0; first < coordinates.rows; first += kRows) {
    const int64_t rows = std::min(kRows, coordinates.rows - first);
    block.resize(static_cast<size_t>(rows * coordinates.row_bytes));
    coordinates.read(first, block);
    RETURN_IF_ERROR(scratch.Write(name, block));
  }
  return absl::OkStatus();
}

absl::StatusOr<ScratchFiles> WriteScratch(const std::string& server, const JobTensors& tensors,
                                          const Access& access, const DataRootOptions& root) {
  ASSIGN_OR_RETURN(const SeenFolder seen, FindFolder(Connect(server, access), root));
  RETURN_IF_ERROR(CheckMemoryRoom(seen.path, SharedBytes(tensors)));
  struct stat mark = {};
  if (stat(seen.mark_path.c_str(), &mark) != 0) return absl::ErrnoToStatus(errno, seen.mark_path);
  ASSIGN_OR_RETURN(Scratch scratch, Scratch::Make(seen.path, mark.st_uid));
  ScratchFiles made{.scratch = std::move(scratch), .files = {}};
  for (const InputTensor& coordinates : tensors.ahead) {
    RETURN_IF_ERROR(WriteCoordinates(coordinates, made.scratch));
    made.files.push_back(FileOf(made.scratch, coordinates.tensor));
  }
  for (const InputTensor& input : tensors.bands) {
    RETURN_IF_ERROR(made.scratch.Write(wire::TensorName(input.tensor), input.bytes));
    made.files.push_back(RawFileOf(made.scratch, input.tensor, input.type, input.shape));
  }
  for (const OutputTensor& output : tensors.outputs) {
    if (!Shared(output)) continue;
    made.files.push_back(RawFileOf(made.scratch, output.tensor, output.type, output.shape));
  }
  return made;
}

bool MaySendSharedMemory(const absl::Status& failure) {
  return MaySend(failure) || wire::HasReason(failure, wire::reason::kFileNoSpace) ||
         wire::HasReason(failure, wire::reason::kFileIo);
}

// The time for writing the files counts against the job's deadline.
absl::StatusOr<v1::Report> ShareOrSend(const std::string& server, const JobRequest& request,
                                       const JobOptions& options,
                                       const SharedMemoryOptions& memory) {
  const JobTensors& tensors = request.tensors;
  const CallTiming timing = WithDefaults(options.timing);
  const absl::Time begun = timing.now();
  const auto from_now = [&] {
    JobOptions rest = options;
    rest.spent += timing.now() - begun;
    return rest;
  };
  const auto send = [&](const absl::Status& why) {
    if (memory.sent && !why.ok()) memory.sent(why);
    return CallJob(server, request, from_now());
  };
  if (SharedBytes(tensors) < memory.least_bytes) return send(absl::OkStatus());
  DataRootOptions root = memory.root;
  root.deadline = std::min(root.deadline, options.deadline - options.spent);
  absl::StatusOr<ScratchFiles> made = WriteScratch(server, tensors, options.access, root);
  if (!made.ok()) return send(made.status());
  JobOptions in_files = from_now();
  in_files.final = [&options](const absl::Status& failure) {
    return MaySendSharedMemory(failure) || (options.final && options.final(failure));
  };
  absl::StatusOr<v1::Report> report = CallJob(server, InFiles(request, made->files), in_files);
  if (!report.ok()) {
    if (!MaySendSharedMemory(report.status())) return report;
    made = report.status();  // frees the files' memory for the sent job
    return send(report.status());
  }
  for (const OutputTensor& output : tensors.outputs) {
    if (!Shared(output)) continue;
    RETURN_IF_ERROR(made->scratch.Read(wire::TensorName(output.tensor), output.data));
  }
  return report;
}

}  // namespace

absl::StatusOr<v1::Report> AttendSharedMemory(const std::string& server, const AttendInputs& inputs,
                                              const AttendOutputs& outputs,
                                              const AttendOptions& options,
                                              const SharedMemoryOptions& memory) {
  ASSIGN_OR_RETURN(const JobRequest request, CheckedRequest(inputs, outputs));
  return ShareOrSend(server, request, options, memory);
}

absl::StatusOr<v1::Report> EncodeSharedMemory(const std::string& server, const EncodeInputs& inputs,
                                              const EncodeResults& results,
                                              const JobOptions& options,
                                              const SharedMemoryOptions& memory) {
  ASSIGN_OR_RETURN(const JobRequest request, CheckedRequest(inputs, results));
  return ShareOrSend(server, request, options, memory);
}

}  // namespace hilbert_ring::client

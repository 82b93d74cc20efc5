// An output that the service's workers write, by reference: whether they have.
//
//   const WrittenFile out = NoteBefore("out.npy", spec.dtype, TensorShape(spec, v1::TENSOR_OUT));
//   ... AttendInFiles returns OK ...
//   RETURN_IF_ERROR(CheckWritten(out));
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring::client {

// Differs between what is written at a path and what was there before.
struct FileVersion {
  dev_t device = 0;
  ino_t inode = 0;
  int64_t modified = 0;  // nanoseconds

  bool operator==(const FileVersion&) const = default;
};

struct WrittenFile {
  std::string path;  // of this machine; .npy
  DataType dtype = DataType::kFloat32;
  std::vector<int64_t> shape;
  std::optional<FileVersion> before;  // nothing: there was no file
};

// Before the job.
WrittenFile NoteBefore(const std::string& path, DataType dtype, std::vector<int64_t> shape);

// DATA_LOSS, naming the path: there is no file, it is the one from before, or it holds another
// array.
absl::Status CheckWritten(const WrittenFile& file);

}  // namespace hilbert_ring::client

// Headers of a job's array files: .npy, or raw numbers.
//
//   ASSIGN_OR_RETURN(const ArrayBegin begin, BeginOf(file, path, opened, array));
//   ...                                          // bytes are read from begin.offset on
//   ASSIGN_OR_RETURN(bytes, Narrowed(begin.type, path, bytes, first, 2));    // coordinates
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/files/descriptor.h"
#include "server/job/job_work.h"
#include "wire/npy_header.h"

namespace hilbert_ring::server {

absl::Status Misshapen(const std::string& path, const std::string& what);

wire::NpyType TypeOf(DataType dtype);

struct ArrayBegin {
  int64_t offset = 0;  // bytes
  wire::NpyType type = wire::NpyType::kFloat32;
};

// Checks the file's type and shape. FILE_MISSHAPEN, errors of BeginOfRaw and FileError.
absl::StatusOr<ArrayBegin> BeginOf(const v1::TensorFile& file, const std::string& path,
                                   const Descriptor& opened, const JobArray& array);

// Checks the type and shape that the client gives. INVALID_OPEN, FILE_MISSHAPEN.
absl::StatusOr<ArrayBegin> BeginOfRaw(const v1::RawFile& raw, const std::string& path,
                                      const JobArray& array);

// Returns integers as uint32, the type of coordinates in chunks. first: the row of the first
// integer. axes: integers of a row. BAD_COORDINATES: an integer is no uint32.
absl::StatusOr<std::string> Narrowed(wire::NpyType type, const std::string& path,
                                     const std::string& bytes, int64_t first, int axes);

}  // namespace hilbert_ring::server

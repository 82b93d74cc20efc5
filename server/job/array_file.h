// Headers of a job's array files: .npy, or raw numbers.
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

// FILE_MISSHAPEN, errors of BeginOfRaw and FileError.
absl::StatusOr<ArrayBegin> BeginOf(const v1::TensorFile& file, const std::string& path,
                                   const Descriptor& opened, const JobArray& array);

// INVALID_OPEN, FILE_MISSHAPEN.
absl::StatusOr<ArrayBegin> BeginOfRaw(const v1::RawFile& raw, const std::string& path,
                                      const JobArray& array);

// Integers as uint32, as chunks carry coordinates. first: the row of the first integer. axes: of a
// row. BAD_COORDINATES.
absl::StatusOr<std::string> Narrowed(wire::NpyType type, const std::string& path,
                                     const std::string& bytes, int64_t first, int axes);

}  // namespace hilbert_ring::server

// An array of a job as a file has it: .npy, or raw numbers.
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

// FILE_MISSHAPEN.
absl::Status Misshapen(const std::string& path, const std::string& what);

// In which numbers of a job lie in its files.
wire::NpyType TypeOf(DataType dtype);

// Where the rows of a file begin, and what numbers it has.
struct ArrayBegin {
  int64_t offset = 0;  // bytes
  wire::NpyType type = wire::NpyType::kFloat32;
};

// Of an input, once it is opened. FILE_MISSHAPEN, errors of BeginOfRaw and FileError.
absl::StatusOr<ArrayBegin> BeginOf(const v1::TensorFile& file, const std::string& path,
                                   const Descriptor& opened, const JobArray& array);

// As the file's description says. INVALID_OPEN, FILE_MISSHAPEN.
absl::StatusOr<ArrayBegin> BeginOfRaw(const v1::RawFile& raw, const std::string& path,
                                      const JobArray& array);

// Integers as chunks have coordinates: uint32. first: the row of the first of them, of which each
// has so many axes. BAD_COORDINATES.
absl::StatusOr<std::string> Narrowed(wire::NpyType type, const std::string& path,
                                     const std::string& bytes, int64_t first, int axes);

}  // namespace hilbert_ring::server

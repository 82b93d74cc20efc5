// Jobs that share memory with a service on this host. Tensors are written to scratch files of its
// data root, which lies in memory. No row passes a socket.
//
//   report = AttendSharedMemory(server, inputs, outputs);
//   report = EncodeSharedMemory(server, inputs, results);
//
// docs/adr/0010-scratch-files.md has the reasons.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/attend.h"
#include "client/cpp/by_reference.h"
#include "client/cpp/encode.h"
#include "client/cpp/job_options.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

struct SharedMemoryOptions {
  // Smaller jobs are sent (docs/performance.md). Counts inputs, coordinates and outputs, without
  // pooled vectors.
  int64_t least_bytes = 8 << 20;
  DataRootOptions root;
  // Called with the cause if the tensors are sent instead; may be empty. FAILED_PRECONDITION:
  // client and service share no data root in memory. RESOURCE_EXHAUSTED: it is full. Other errors
  // are the service's.
  std::function<void(const absl::Status& why)> sent;
};

// Runs Attend, with its errors. The report's by_reference is true if the tensors were shared;
// AttendInputs::sent is then not called. DATA_LOSS also: an output is incomplete.
absl::StatusOr<v1::Report> AttendSharedMemory(const std::string& server, const AttendInputs& inputs,
                                              const AttendOutputs& outputs,
                                              const AttendOptions& options = {},
                                              const SharedMemoryOptions& memory = {});

// Runs Encode in the same way. Tiles, coordinates, states and maps are shared; the few pooled
// vectors are sent.
absl::StatusOr<v1::Report> EncodeSharedMemory(const std::string& server, const EncodeInputs& inputs,
                                              const EncodeResults& results,
                                              const JobOptions& options = {},
                                              const SharedMemoryOptions& memory = {});

}  // namespace hilbert_ring::client

// Jobs whose tensors lie in memory, handed to a service on this host: they are written to scratch
// files of its data root, which lies in memory too, and no row passes a socket.
//
//   report = AttendSharedMemory(server, inputs, outputs);
//   report = EncodeSharedMemory(server, inputs, results);
//
// docs/adr/0010-scratch-files.md says why so.
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
  // Of inputs, coordinates included, and outputs but pooled vectors: smaller jobs are sent
  // (docs/performance.md).
  int64_t least_bytes = 8 << 20;
  DataRootOptions root;
  // Told, if set, why the tensors are sent: FAILED_PRECONDITION where there is no data root in
  // memory that both see, RESOURCE_EXHAUSTED where it is full, or an error of the service's.
  std::function<void(const absl::Status& why)> sent;
};

// As Attend, with its errors. The report's by_reference says whether the tensors were handed.
// AttendInputs::sent is told of nothing where they are. DATA_LOSS, too: an output is not whole.
absl::StatusOr<v1::Report> AttendSharedMemory(const std::string& server, const AttendInputs& inputs,
                                              const AttendOutputs& outputs,
                                              const AttendOptions& options = {},
                                              const SharedMemoryOptions& handed = {});

// As Encode, with its errors, likewise. Tiles, coordinates, states and maps are handed; pooled
// vectors, which are few, are sent.
absl::StatusOr<v1::Report> EncodeSharedMemory(const std::string& server, const EncodeInputs& inputs,
                                              const EncodeResults& results,
                                              const JobOptions& options = {},
                                              const SharedMemoryOptions& handed = {});

}  // namespace hilbert_ring::client

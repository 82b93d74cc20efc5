// The job of a call (attention or an encoder).
#pragma once

#include <cstdint>
#include <vector>

#include "client/cpp/attend.h"
#include "client/cpp/encode.h"
#include "client/cpp/job_tensors.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

struct JobRequest {
  const char* method = nullptr;  // of a service: "/hilbert_ring.v1.AttentionService/Attend"
  v1::Open open;                 // without an attempt's own fields
  JobTensors tensors;
  int64_t tokens = 0;

  bool by_reference() const { return open.files_size() > 0; }
};

// Inputs and outputs were checked, and must outlive the request.
JobRequest RequestOf(const AttendInputs& inputs, const AttendOutputs& outputs);
JobRequest RequestOf(const EncodeInputs& inputs, const EncodeResults& results);

// Returns the same job with all inputs in these files, and every output that has a file. LSE is
// wanted if it has a file.
JobRequest InFiles(JobRequest request, const std::vector<v1::TensorFile>& files);

}  // namespace hilbert_ring::client

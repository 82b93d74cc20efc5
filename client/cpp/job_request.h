// A call's job, of attention or of an encoder.
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
  v1::Open open;                 // but for what an attempt says of itself
  JobTensors tensors;
  int64_t tokens = 0;

  // Nothing is sent: the tensors lie in files.
  bool by_reference() const { return open.files_size() > 0; }
};

// Of inputs and outputs that were checked, and outlive the request.
JobRequest RequestOf(const AttendInputs& inputs, const AttendOutputs& outputs);
JobRequest RequestOf(const EncodeInputs& inputs, const EncodeResults& results);

// The same job, whose inputs lie in these files, and those of its outputs that the files name. LSE
// is wanted where it is named.
JobRequest InFiles(JobRequest request, const std::vector<v1::TensorFile>& files);

}  // namespace hilbert_ring::client

#include "client/cpp/job_request.h"

#include <algorithm>

namespace hilbert_ring::client {

JobRequest InFiles(JobRequest request, const std::vector<v1::TensorFile>& files) {
  request.open.mutable_files()->Assign(files.begin(), files.end());
  request.tensors.ahead.clear();
  request.tensors.bands.clear();
  std::erase_if(request.tensors.outputs, [&files](const OutputTensor& output) {
    return std::ranges::any_of(
        files, [&output](const v1::TensorFile& file) { return file.tensor() == output.tensor; });
  });
  return request;
}

}  // namespace hilbert_ring::client

#include "client/cpp/job_request.h"

#include <vector>

namespace hilbert_ring::client {

JobRequest InFiles(JobRequest request, const std::vector<v1::TensorFile>& files) {
  request.open.mutable_files()->Assign(files.begin(), files.end());
  request.tensors.ahead.clear();
  request.tensors.bands.clear();
  for (const v1::TensorFile& file : files) {
    if (file.tensor() == v1::TENSOR_LSE) request.open.set_want_lse(true);
    std::erase_if(request.tensors.outputs,
                  [&file](const OutputTensor& output) { return output.tensor == file.tensor(); });
  }
  return request;
}

}  // namespace hilbert_ring::client

// Jobs whose tensors lie in files that this client and the service both see: the service's workers
// read and write them, and no tensor passes the network.
//
//   const auto files = NameFiles(*channel, {{v1::TENSOR_Q, "q.npy"}, {v1::TENSOR_OUT, "out.npy"}});
//   if (files.ok()) report = AttendInFiles(server, spec, *files, options);
//
// That both see the same folder is shown by a file of the service's in it, whose random word the
// service tells.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/job_options.h"
#include "engine/spec/job_spec.h"
#include "grpcpp/channel.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

struct TensorPath {
  v1::Tensor tensor = v1::TENSOR_UNSPECIFIED;
  std::string path;  // of this machine; .npy
};

struct DataRootOptions {
  std::string path = "";  // where this machine sees the data root; empty: where the service does
  absl::Duration outage_timeout = absl::ZeroDuration();  // as of RequestDataRoot
  absl::Duration deadline = absl::InfiniteDuration();    // as of RequestDataRoot
  bool await_workers = false;  // none that sees the root yet is no error: the job's call waits
};

// The caller's folder of the service's data root, which this machine sees.
struct SeenFolder {
  std::string path;       // without symbolic links
  std::string mark_path;  // of the service's file in the root
};
// FAILED_PRECONDITION as of NameFiles; errors of the call.
absl::StatusOr<SeenFolder> FindFolder(const std::shared_ptr<grpc::Channel>& channel,
                                      const DataRootOptions& options = {});

// The files as Open names them. Symbolic links are followed here, for the service follows none.
// FAILED_PRECONDITION, saying why, where the service has no data root, or another than this client
// sees, or a file does not lie in the caller's folder of it; errors of the call.
absl::StatusOr<std::vector<v1::TensorFile>> NameFiles(const std::shared_ptr<grpc::Channel>& channel,
                                                      const std::vector<TensorPath>& tensors,
                                                      const DataRootOptions& options = {});

// Whether a job that failed so may well be done where its tensors are sent: the service's processes
// do not see, or may not use, what this client does.
bool MaySend(const absl::Status& failure);

// As Attend (client/cpp/attend.h), of files that hold all inputs and outputs of the job; LSE is
// wanted where it is named. When it returns OK the outputs are whole, and on the service's disk.
absl::StatusOr<v1::Report> AttendInFiles(const std::string& server, const JobSpec& spec,
                                         const std::vector<v1::TensorFile>& files,
                                         const JobOptions& options = {});

}  // namespace hilbert_ring::client

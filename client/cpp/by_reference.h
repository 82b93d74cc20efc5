// Jobs whose tensors lie in files that this client and the service both see. The workers read and
// write the files, and no tensor passes the network.
//
//   const auto files = NameFiles(*channel, {{v1::TENSOR_Q, "q.npy"}, {v1::TENSOR_OUT, "out.npy"}});
//   if (files.ok()) report = AttendInFiles(server, spec, *files, options);
//
// The service keeps a file with a random word in the folder. The client compares the word to check
// that both see the same folder.
#pragma once

#include <memory>
#include <string>
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
  std::string path;  // on this machine; .npy
};

struct DataRootOptions {
  std::string path = "";  // of the data root on this machine; empty: the service's own path
  absl::Duration outage_timeout = absl::ZeroDuration();  // as in RequestDataRoot
  absl::Duration deadline = absl::InfiniteDuration();    // as in RequestDataRoot
  bool await_workers = false;  // the job's call waits for workers that see the root
};

struct SeenFolder {
  std::string path;       // without symbolic links
  std::string mark_path;  // of the service's file in the root
};
// Errors as of NameFiles.
absl::StatusOr<SeenFolder> FindFolder(const std::shared_ptr<grpc::Channel>& channel,
                                      const DataRootOptions& options = {});

// Returns the files for Open, with symbolic links resolved, because the service follows none.
// FAILED_PRECONDITION, with the cause: the service has no data root, this client sees another one,
// or a file lies outside the caller's folder. Also errors of the call.
absl::StatusOr<std::vector<v1::TensorFile>> NameFiles(const std::shared_ptr<grpc::Channel>& channel,
                                                      const std::vector<TensorPath>& tensors,
                                                      const DataRootOptions& options = {});

// Returns whether the job may succeed with its tensors sent, after it failed by path.
bool MaySend(const absl::Status& failure);

// Runs Attend (client/cpp/attend.h) on files of all inputs and outputs; LSE is wanted if it has a
// file. When the call returns OK, the outputs are complete and on the service's disk.
absl::StatusOr<v1::Report> AttendInFiles(const std::string& server, const JobSpec& spec,
                                         const std::vector<v1::TensorFile>& files,
                                         const JobOptions& options = {});

}  // namespace hilbert_ring::client

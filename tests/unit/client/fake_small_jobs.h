// A SmallJobsService in the test's own process. The queries of a job are its output.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hilbert_ring/v1/many.grpc.pb.h"
#include "tests/unit/client/fake_server.h"

namespace hilbert_ring::client {

class FakeSmallJobs final : public v1::SmallJobsService::Service {
 public:
  // What comes of a job: its results, in their order; none: the call ends without one. Both are
  // numbered from 0. Called by several threads.
  using Answer = std::function<std::vector<absl::Status>(int call, int64_t job)>;

  // port 0: any.
  explicit FakeSmallJobs(Answer answer, int port = 0);

  std::string address() const { return server_.address(); }

  // Of all calls that have ended, in the order in which they began: the tokens of their jobs.
  std::vector<std::vector<int64_t>> calls() const;

  grpc::Status AttendMany(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::AttendManyResponse, v1::AttendManyRequest>* stream) override;

 private:
  const Answer answer_;
  mutable std::mutex mutex_;
  std::vector<std::vector<int64_t>> calls_;  // guarded by mutex_
  FakeServer server_;
};

}  // namespace hilbert_ring::client

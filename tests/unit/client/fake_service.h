// A service in the test's own process that gives every job's queries back as its output.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "grpcpp/server.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"

namespace hilbert_ring::client {

struct FakeBehaviour {
  int queued = 0;                 // messages of this kind before Admitted
  int64_t max_payload_bytes = 0;  // in Admitted
  int64_t rows_per_output = 3;
  bool output_while_receiving = false;  // a row leaves as soon as its query is there
  std::function<void(std::vector<v1::OutputChunk>&)> change_outputs;
  std::optional<grpc::Status> refuse;  // in place of Admitted
  std::optional<grpc::Status> fail;    // after fail_after_chunks of input
  int fail_after_chunks = 0;
  bool stall = false;  // reads nothing after Admitted
  bool leave_out_report = false;
};

// What came in the last call.
struct FakeRecord {
  v1::Open open;
  std::vector<v1::Chunk> chunks;              // without payloads
  std::map<v1::Tensor, std::string> tensors;  // whole
  bool checksums_right = true;
};

class FakeService final : public v1::AttentionService::Service {
 public:
  explicit FakeService(FakeBehaviour behaviour = {});
  ~FakeService() override;

  std::string address() const;  // host:port
  FakeRecord record() const;

  grpc::Status Attend(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::AttendResponse, v1::AttendRequest>* stream) override;
  grpc::Status Plan(grpc::ServerContext* context, const v1::PlanRequest* request,
                    v1::PlanResponse* response) override;
  grpc::Status GetCluster(grpc::ServerContext* context, const v1::GetClusterRequest* request,
                          v1::GetClusterResponse* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  // NOT_FOUND for any but "job-a".
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                         v1::CancelJobResponse* response) override;

 private:
  const FakeBehaviour behaviour_;
  mutable std::mutex mutex_;
  FakeRecord record_;  // guarded by mutex_
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace hilbert_ring::client

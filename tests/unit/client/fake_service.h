// A service in the test's own process that returns each job's queries as its output. It waits for
// all rows of a client that can resend, otherwise for the end of the input.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "tests/unit/client/fake_record.h"
#include "tests/unit/client/fake_server.h"

namespace hilbert_ring::client {

struct FakeBehaviour {
  int queued = 0;                       // messages of this kind before Admitted
  int64_t max_payload_bytes = 0;        // in Admitted
  bool output_while_receiving = false;  // each row leaves when its query has arrived
  std::function<void(std::vector<v1::OutputChunk>&)> change_outputs;
  std::function<void()> before_admitted;
  std::optional<v1::AttendResponse> after_admitted;  // of any kind
  std::optional<grpc::Status> refuse;                // instead of Admitted
  std::optional<grpc::Status> fail;                  // after fail_after_chunks of input
  int fail_after_chunks = 0;
  bool stall = false;                // reads nothing after Admitted
  bool outputs_with_report = false;  // in the report's message
  bool leave_out_admitted = false;
  // Requested in order, once more than resend_after_chunks have arrived. The service drops these
  // rows first.
  std::vector<v1::Resend> resends;
  int resend_after_chunks = 0;
  bool await_close = false;  // after the report, reads until the client closes its side
  std::optional<std::string> retry_after;  // sent with `refuse` or `fail`
  std::vector<FakeBehaviour>
      earlier_calls;      // behaviours of the first calls; later calls follow the fields above
  int refused_plans = 0;  // number of Plan calls with `refuse` and `retry_after` before a success
  // Answers GetDataRoot; null: UNIMPLEMENTED.
  std::function<grpc::Status(grpc::ServerContext&, v1::GetDataRootResponse&)> data_root;
};

class FakeService final : public v1::AttentionService::Service {
 public:
  explicit FakeService(FakeBehaviour behaviour = {}, int port = 0);

  std::string address() const { return server_.address(); }
  int port() const { return server_.port(); }
  FakeRecord record() const;                // of the last call
  std::vector<FakeRecord> records() const;  // of all calls of Attend
  int plans() const { return plans_; }      // calls of Plan

  grpc::Status Attend(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::AttendResponse, v1::AttendRequest>* stream) override;
  grpc::Status Plan(grpc::ServerContext* context, const v1::PlanRequest* request,
                    v1::PlanResponse* response) override;
  grpc::Status GetDataRoot(grpc::ServerContext* context, const v1::GetDataRootRequest* request,
                           v1::GetDataRootResponse* response) override;
  grpc::Status GetCluster(grpc::ServerContext* context, const v1::GetClusterRequest* request,
                          v1::GetClusterResponse* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                         v1::CancelJobResponse* response) override;

 private:
  const FakeBehaviour behaviour_;
  std::atomic<int> plans_ = 0;
  mutable std::mutex mutex_;
  std::vector<FakeRecord> records_;  // guarded by mutex_
  FakeServer server_;
};

}  // namespace hilbert_ring::client

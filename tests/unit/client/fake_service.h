// A service in the test's own process that gives every job's queries back as its output. It waits
// for the rows of a client that can send them again, and for the end of the input of one that
// cannot.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "tests/unit/client/fake_server.h"

namespace hilbert_ring::client {

struct FakeBehaviour {
  int queued = 0;                       // messages of this kind before Admitted
  int64_t max_payload_bytes = 0;        // in Admitted
  bool output_while_receiving = false;  // a row leaves as soon as its query is there
  std::function<void(std::vector<v1::OutputChunk>&)> change_outputs;
  std::function<void()> before_admitted;
  std::optional<v1::AttendResponse> after_admitted;  // of any kind
  std::optional<grpc::Status> refuse;                // in place of Admitted
  std::optional<grpc::Status> fail;                  // after fail_after_chunks of input
  int fail_after_chunks = 0;
  bool stall = false;                // reads nothing after Admitted
  bool outputs_with_report = false;  // in its message
  bool leave_out_admitted = false;
  // Asked for one after the other, once more than resend_after_chunks have come; those rows are
  // forgotten first.
  std::vector<v1::Resend> resends;
  int resend_after_chunks = 0;
  bool await_close = false;  // reads until the client closes its side, after the report
  std::optional<std::string> retry_after;  // along with `refuse` or `fail`
  std::vector<FakeBehaviour>
      earlier_calls;  // the first calls go so, one each; those after as above
  int refused_plans =
      0;  // calls of Plan that get `refuse`, with `retry_after`, before one is served
  // Of GetDataRoot; null: the service knows no such call.
  std::function<grpc::Status(grpc::ServerContext&, v1::GetDataRootResponse&)> data_root;
};

// What came in a call.
struct FakeRecord {
  v1::Open open;
  std::vector<v1::Chunk> chunks;              // without payloads
  std::map<v1::Tensor, std::string> tensors;  // whole
  bool checksums_right = true;
  bool closed_early = false;  // the client closed its side though it can resend
};

class FakeService final : public v1::AttentionService::Service {
 public:
  // port 0: any.
  explicit FakeService(FakeBehaviour behaviour = {}, int port = 0);

  std::string address() const { return server_.address(); }
  int port() const { return server_.port(); }
  FakeRecord record() const;                // of the last call
  std::vector<FakeRecord> records() const;  // of all that came to Attend
  int plans() const { return plans_; }      // calls of Plan that came

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
  // NOT_FOUND for any but "job-a".
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

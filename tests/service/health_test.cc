#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "grpcpp/impl/codegen/rpc_method.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/sync_stream.h"
#include "gtest/gtest.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::testing {
namespace {

using grpc::internal::RpcMethod;
using ::testing::ElementsAre;

constexpr char kAttention[] = "hilbert_ring.v1.AttentionService";
constexpr char kEncoder[] = "hilbert_ring.v1.EncoderService";
constexpr char kMembership[] = "hilbert_ring.v1.MembershipService";
constexpr char kWorker[] = "hilbert_ring.v1.WorkerService";
const std::string kServing = "\x08\x01", kNotServing = "\x08\x02";  // HealthCheckResponse{status}

// HealthCheckRequest{service}
grpc::ByteBuffer RequestFor(const std::string& service) {
  const std::string bytes =
      service.empty()
          ? ""
          : absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())), service);
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.TrySingleSlice(&slice).ok()) return "?";
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

std::string Check(const std::string& address, const std::string& service) {
  const auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  const RpcMethod method("/grpc.health.v1.Health/Check", RpcMethod::NORMAL_RPC);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  grpc::ByteBuffer response;
  const grpc::Status status = grpc::internal::BlockingUnaryCall(channel.get(), method, &context,
                                                                RequestFor(service), &response);
  return status.ok() ? BytesOf(response) : absl::StrCat("error ", status.error_code());
}

class Watch {
 public:
  Watch(const std::string& address, const std::string& service)
      : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    reader_.reset(grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(
        channel_.get(), method_, &context_, RequestFor(service)));
  }

  std::string Next() {
    grpc::ByteBuffer response;
    while (reader_->Read(&response)) {
      if (std::string now = BytesOf(response); now != last_) return last_ = std::move(now);
    }
    return "end";
  }

  ~Watch() {
    context_.TryCancel();
    reader_->Finish();
  }

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const RpcMethod method_{"/grpc.health.v1.Health/Watch", RpcMethod::SERVER_STREAMING};
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> reader_;
  std::string last_;
};

TEST(Health, EachPortReportsItselfAndItsService) {
  const auto cluster = Cluster::Start({.workers = 2}).value();
  const std::string worker = cluster->Describe().value().workers(0).address();
  EXPECT_EQ(Check(cluster->address(), ""), kServing);
  for (const char* service : {kAttention, kEncoder}) {
    EXPECT_EQ(Check(cluster->address(), service), kServing) << service;
  }
  EXPECT_EQ(Check(cluster->membership_address(), ""), kServing);
  EXPECT_EQ(Check(cluster->membership_address(), kMembership), kServing);
  // A worker learns from the next heartbeat's reply that it is up.
  for (const char* service : {"", kWorker}) {
    Watch watch(worker, service);
    std::string status = watch.Next();
    if (status == kNotServing) status = watch.Next();
    EXPECT_EQ(status, kServing) << service;
    EXPECT_EQ(Check(worker, service), kServing);
  }
  const std::string not_found = absl::StrCat("error ", grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Check(cluster->address(), kMembership), not_found) << "served elsewhere";
  EXPECT_EQ(Check(cluster->address(), "no.Service"), not_found);
}

TEST(Health, IsNotServingWithoutWorkersAndAgainWithThem) {
  const auto cluster = Cluster::Start({.workers = 1}).value();
  Watch whole(cluster->address(), ""), service(cluster->address(), kAttention);
  std::vector<std::string> statuses = {whole.Next()};
  kill(cluster->Workers().at(0), SIGKILL);
  statuses.push_back(whole.Next());
  statuses.push_back(whole.Next());  // the coordinator starts another worker
  EXPECT_THAT(statuses, ElementsAre(kServing, kNotServing, kServing));
  statuses = {service.Next(), service.Next(), service.Next()};
  EXPECT_THAT(statuses, ElementsAre(kServing, kNotServing, kServing));
}

TEST(Health, IsNotServingWhileDraining) {
  const auto cluster = Cluster::Start({.workers = 1}).value();
  auto stub = cluster->Stub();
  RawCall call(*stub, std::chrono::seconds(60));  // a job that delays the service's end
  ASSERT_TRUE(call.Open(PlainSpec({.tokens = 256})));
  ASSERT_TRUE(call.AwaitAdmitted());
  Watch attention(cluster->address(), kAttention);
  Watch membership(cluster->membership_address(), kMembership);
  EXPECT_EQ(attention.Next(), kServing);
  EXPECT_EQ(membership.Next(), kServing);
  kill(cluster->coordinator(), SIGTERM);
  EXPECT_EQ(attention.Next(), kNotServing);
  EXPECT_EQ(membership.Next(), kNotServing);
  call.Cancel();
  EXPECT_EQ(cluster->Stop(), absl::OkStatus());
}

}  // namespace
}  // namespace hilbert_ring::testing

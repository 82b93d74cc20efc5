#include "server/cluster/rings.h"

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/process/grpc_endpoint.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Member> Worker(const std::string& address, const std::string& transport) {
  auto member = std::make_shared<Member>();
  member->address = address;
  member->transport = transport;
  return member;
}

TEST(Rings, RefuseAMixBeforeAnyCall) {
  Rings rings;
  JobStop stop;
  // The members have no stubs: a call would crash.
  const auto lease = rings.Take(
      {Worker("a:1", "gloo"), Worker("b:1", "gloo"), Worker("c:1", "nccl")}, "job", stop);
  EXPECT_EQ(wire::ReasonOf(lease.status()), "MIXED_TRANSPORTS");
  EXPECT_THAT(std::string(lease.status().message()),
              HasSubstr("worker a:1 makes rings over gloo, worker c:1 over nccl"));
  EXPECT_TRUE(rings.Describe().empty());
}

// Workers that record their calls: "prepare ID GENERATION", "close ID GENERATION".
class NotedWorkers : public v1::WorkerService::Service {
 public:
  grpc::Status PrepareRing(grpc::ServerContext* /*context*/, const v1::PrepareRingRequest* request,
                           v1::PrepareRingResponse* response) override {
    const std::lock_guard lock(mutex_);
    noted_.push_back(absl::StrCat("prepare ", request->ring_id(), " ", request->generation()));
    response->set_blob(absl::StrCat(request->rank()));
    return grpc::Status::OK;
  }
  grpc::Status ConnectRing(grpc::ServerContext* /*context*/, const v1::ConnectRingRequest* request,
                           v1::ConnectRingResponse* /*response*/) override {
    const std::lock_guard lock(mutex_);
    blobs_.assign(request->blobs().begin(), request->blobs().end());
    return grpc::Status::OK;
  }
  grpc::Status CloseRing(grpc::ServerContext* context, const v1::CloseRingRequest* request,
                         v1::CloseRingResponse* /*response*/) override {
    while (silent_ && !context->IsCancelled()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const std::lock_guard lock(mutex_);
    noted_.push_back(absl::StrCat("close ", request->ring_id(), " ", request->generation()));
    return grpc::Status::OK;
  }

  std::vector<std::string> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(noted_, {});
  }
  std::vector<std::string> blobs() {
    const std::lock_guard lock(mutex_);
    return blobs_;
  }
  void BeSilent() { silent_ = true; }  // when a ring is to be closed

 private:
  std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<std::string> noted_, blobs_;
  std::atomic<bool> silent_ = false;
};

class RingsTest : public ::testing::Test {
 protected:
  RingsTest() {
    auto started = StartGrpc({.host = "127.0.0.1", .max_threads = 16}, {&workers_});
    EXPECT_TRUE(started.ok()) << started.status();
    endpoint_ = *std::move(started);
    channel_ = Dial(absl::StrCat("127.0.0.1:", endpoint_.port), std::chrono::seconds(10));
  }
  ~RingsTest() override { endpoint_.Shutdown(std::chrono::milliseconds(0)); }

  std::shared_ptr<Member> NewMember() {
    auto member = std::make_shared<Member>();
    member->address = absl::StrCat("worker-", ++numbered_);
    member->transport = "gloo";
    member->stub = v1::WorkerService::NewStub(channel_);
    return member;
  }

  std::string Use(const Members& members) {
    auto lease = rings_.Take(members, "job", stop_);
    EXPECT_TRUE(lease.ok()) << lease.status();
    if (!lease.ok()) return "";
    lease->Keep();
    return absl::StrCat(lease->ring_id(), " ", lease->generation());
  }

  NotedWorkers workers_;
  GrpcEndpoint endpoint_;
  std::shared_ptr<grpc::Channel> channel_;
  JobStop stop_;
  int numbered_ = 0;
  Rings rings_;
};

TEST_F(RingsTest, AKeptRingIsThereForTheNextJob) {
  const Members two = {NewMember(), NewMember()};
  const std::string first = Use(two);
  EXPECT_THAT(workers_.Take(), ::testing::ElementsAre("prepare " + first, "prepare " + first));
  EXPECT_THAT(workers_.blobs(), ::testing::ElementsAre("0", "1"));
  EXPECT_EQ(Use(two), first);
  EXPECT_NE(Use({two[1], two[0]}), first) << "by rank: another order is another ring";
}

TEST_F(RingsTest, ALeasedRingIsNotGivenTwice) {
  const Members members = {NewMember()};
  const auto lease = rings_.Take(members, "first", stop_);
  ASSERT_TRUE(lease.ok());
  const auto other = rings_.Take(members, "second", stop_);
  EXPECT_EQ(wire::ReasonOf(other.status()), "RING_LEASED");
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("leased by job first"));
  EXPECT_THAT(workers_.Take(), ::testing::SizeIs(1)) << "and the first one keeps it";
}

// A worker holds sockets and buffers for each of its rings.
TEST_F(RingsTest, OfManyRingsTheOnesUsedLastAreKept) {
  std::vector<Members> of;
  std::vector<std::string> ids;
  for (int i = 0; i < 12; ++i) {
    of.push_back({NewMember()});
    ids.push_back(Use(of.back()));
  }
  ASSERT_EQ(rings_.Describe().size(), 8U);
  std::vector<std::string> closed;
  for (const std::string& noted : workers_.Take()) {
    if (noted.starts_with("close ")) closed.push_back(noted.substr(6));
  }
  EXPECT_THAT(closed, ::testing::ElementsAreArray(ids.begin(), ids.begin() + 4));
  for (int i = 11; i >= 4; --i) EXPECT_EQ(Use(of[i]), ids[i]) << "kept, " << i;
  EXPECT_THAT(workers_.Take(), ::testing::IsEmpty());
  const std::string next = Use({NewMember()});
  EXPECT_THAT(workers_.Take(), ::testing::ElementsAre("close " + ids[11], "prepare " + next));
  EXPECT_EQ(Use(of[4]), ids[4]);
  EXPECT_THAT(workers_.Take(), ::testing::IsEmpty());
}

TEST_F(RingsTest, LeasedRingsAreNeverClosed) {
  std::list<Rings::Lease> leases;
  for (int i = 0; i < 12; ++i) {
    auto lease = rings_.Take({NewMember()}, absl::StrCat("job ", i), stop_);
    ASSERT_TRUE(lease.ok()) << lease.status();
    leases.push_back(*std::move(lease));
  }
  EXPECT_EQ(rings_.Describe().size(), 12U);
  EXPECT_THAT(workers_.Take(), ::testing::Each(::testing::StartsWith("prepare ")));
}

TEST_F(RingsTest, ARingWithoutOneOfItsMembersIsGivenUp) {
  const auto leaves = NewMember(), stays = NewMember();
  const std::string id = Use({leaves, stays});
  workers_.Take();
  leaves->departed.request_stop();
  Use({stays});
  EXPECT_THAT(workers_.Take(), ::testing::Contains("close " + id).Times(1))
      << "the remaining member is called";
  EXPECT_EQ(rings_.Describe().size(), 1U);
}

// The hosts are behind a filter that drops packets to them.
TEST_F(RingsTest, ManyUnreachableMembersDoNotDelayTheNextRing) {
  Members members;
  for (int i = 0; i < 10; ++i) members.push_back(NewMember());
  auto lease = rings_.Take(members, "job", stop_);
  ASSERT_TRUE(lease.ok()) << lease.status();
  workers_.BeSilent();
  const auto begin = std::chrono::steady_clock::now();
  { const Rings::Lease given_back = *std::move(lease); }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  EXPECT_TRUE(rings_.Describe().empty());
}

}  // namespace
}  // namespace hilbert_ring::server

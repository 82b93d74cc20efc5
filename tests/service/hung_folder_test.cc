#include "tests/support/hung_folder.h"

#include <chrono>
#include <filesystem>
#include <thread>

#include "client/cpp/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/by_reference.h"
#include "tests/support/await.h"
#include "tests/support/plain_spec.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

class HungFolderTest : public ByReferenceTest {};

TEST_F(HungFolderTest, HoldsOnlyTheJobsWithFilesThere) {
  std::filesystem::create_directories(folder_ / "root/hung");
  if (const auto probe = HungFolder::Mount(folder_ / "root/hung"); !probe.ok()) {
    GTEST_SKIP() << probe.status();
  }
  Start({"--stall-timeout=3"});
  const JobSpec spec = PlainSpec();
  const EngineInputs inputs = RandomInputs(spec, 1);
  v1::Open open = Write(spec, inputs);
  FileOf(open, v1::TENSOR_OUT).set_path("hung/out.npy");
  auto hung = HungFolder::Mount(folder_ / "root/hung").value();
  const auto held = Call(open), cancelled = Call(open);
  cancelled->Cancel();
  EXPECT_TRUE(absl::IsCancelled(cancelled->Finish()));
  const auto stub = cluster_->Stub();
  RawCall beside(*stub, std::chrono::seconds(60));
  v1::AttendRequest request;
  *request.mutable_open()->mutable_spec() = wire::EncodeJobSpec(spec);
  request.mutable_open()->set_job_id("beside");
  ASSERT_TRUE(beside.Write(request) && beside.AwaitAdmitted());
  EXPECT_TRUE(client::RequestCancel(cluster_->Channel(), "beside").ok());
  EXPECT_EQ(wire::ReasonOf(beside.Finish()), "CANCELLED_BY_CALLER");
  const auto sent = AttendRaw(*stub, spec, inputs, 16, 1);
  EXPECT_TRUE(sent.ok()) << sent.status();
  EXPECT_TRUE(Run(Write(spec, inputs)).ok()) << "files that answer";
  EXPECT_TRUE(cluster_->HttpGet("/livez").ok());
  EXPECT_TRUE(cluster_->HttpGet("/readyz").ok());
  hung.reset();
  EXPECT_FALSE(Finish(*held).ok());
  EXPECT_TRUE(Run(open).ok()) << "it answers again";
  EXPECT_TRUE(cluster_->Stop().ok());
}

TEST_F(HungFolderTest, DelaysAStopToItsLimitAtMost) {
  std::filesystem::create_directories(folder_ / "root/hung");
  if (const auto probe = HungFolder::Mount(folder_ / "root/hung"); !probe.ok()) {
    GTEST_SKIP() << probe.status();
  }
  Start({"--exit-timeout=0.1"});
  const JobSpec spec = PlainSpec();
  v1::Open open = Write(spec, RandomInputs(spec, 1));
  FileOf(open, v1::TENSOR_OUT).set_path("hung/out.npy");
  const auto hung = HungFolder::Mount(folder_ / "root/hung").value();
  const auto held = Call(open);
  ASSERT_TRUE(Await([&] {
    return cluster_->Metric("hilbert_ring_requests_in_flight{method=\"Attend\"}").value_or(0) == 1;
  }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until the job opens its files
  EXPECT_THAT(cluster_->Stop().ToString(), ::testing::HasSubstr("exit status 4"));
}

}  // namespace
}  // namespace hilbert_ring::testing

// A file system beneath --data-root that answers nobody: it holds the jobs that name files there,
// and nobody else.
#include "tests/support/hung_folder.h"

#include <chrono>
#include <filesystem>
#include <memory>

#include "gtest/gtest.h"
#include "tests/service/by_reference.h"
#include "tests/support/manual_time.h"
#include "tests/support/plain_spec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

class HungFolderTest : public ByReferenceTest {};

INSTANTIATE_TEST_SUITE_P(Places, HungFolderTest, ::testing::Values(WorkerPlace::kLocal),
                         [](const auto& info) { return PlaceName(info.param); });

TEST_P(HungFolderTest, HoldsTheJobsThatNamedItAlone) {
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
  const auto failing = Call(open);
  open.set_job_id("cancelled");
  const auto cancelled = Call(open);
  const auto stub = cluster_->Stub();
  EXPECT_TRUE(Eventually([&] {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_job_id("cancelled");
    v1::CancelJobResponse response;
    return stub->CancelJob(&context, request, &response).ok();
  }));
  EXPECT_EQ(wire::ReasonOf(cancelled->Finish()), "CANCELLED_BY_CALLER");
  const auto sent = AttendRaw(*stub, spec, inputs, 16, 1);
  EXPECT_TRUE(sent.ok()) << sent.status();
  EXPECT_TRUE(Run(Write(spec, inputs)).ok()) << "files that answer";
  EXPECT_TRUE(cluster_->HttpGet("/livez").ok());
  EXPECT_TRUE(cluster_->HttpGet("/readyz").ok());
  EXPECT_EQ(wire::ReasonOf(failing->Finish()), "DATA_ROOT_GONE");
  open.clear_job_id();
  hung.reset();
  EXPECT_TRUE(Run(open).ok()) << "it answers again";
  EXPECT_TRUE(cluster_->Stop().ok());
}

}  // namespace
}  // namespace hilbert_ring::testing

// File systems beneath --data-root and --model-dir that answer nobody: who names files there gets
// an error, others their results, and the service ends when it is told to.
#include "tests/support/hung_folder.h"

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "hilbert_ring/v1/encoder.grpc.pb.h"
#include "tests/service/by_reference.h"
#include "tests/support/free_port.h"
#include "tests/support/frozen_disk.h"
#include "tests/support/manual_time.h"
#include "tests/support/plain_spec.h"
#include "tests/support/program.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class HungFolderTest : public ByReferenceTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "root/hung");
    std::filesystem::create_directories(folder_ / "models/hung");
    if (const auto probe = HungFolder::Mount(folder_ / "root/hung"); !probe.ok()) {
      GTEST_SKIP() << probe.status();
    }
  }
  // Over a folder beneath the test's.
  std::unique_ptr<HungFolder> Hang(const std::string& folder) {
    auto hung = HungFolder::Mount(folder_ / folder);
    EXPECT_TRUE(hung.ok()) << hung.status();
    return *std::move(hung);
  }
  double Left(const std::string& folder) const {
    return cluster_->Metric("hilbert_ring_file_steps_left{folder=\"" + folder + "\"}").value_or(-1);
  }
  // Of a model of the service.
  grpc::StatusCode GetModel(milliseconds limit) {
    const auto stub = v1::EncoderService::NewStub(cluster_->Channel());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    v1::GetModelRequest request;
    request.set_name("hung");
    v1::Model model;
    return stub->GetModel(&context, request, &model).error_code();
  }
  void ExpectJobsWithoutFilesGoOn(const JobSpec& spec, const EngineInputs& inputs) {
    const auto sent = AttendRaw(*cluster_->Stub(), spec, inputs, 16, 1);
    EXPECT_TRUE(sent.ok()) << sent.status();
  }
  // An output there.
  v1::Open NamesAHungOutput(const JobSpec& spec, const EngineInputs& inputs) {
    v1::Open open = Write(spec, inputs);
    FileOf(open, v1::TENSOR_OUT).set_path("hung/out.npy");
    return open;
  }
  void ExpectItEnds(milliseconds within) {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_TRUE(cluster_->Stop().ok());
    EXPECT_LT(std::chrono::steady_clock::now() - begun, within);
  }

  const JobSpec spec_ = PlainSpec();
  const EngineInputs inputs_ = RandomInputs(spec_, 1);
};

INSTANTIATE_TEST_SUITE_P(Places, HungFolderTest, ::testing::Values(WorkerPlace::kLocal),
                         [](const auto& info) { return PlaceName(info.param); });

TEST_P(HungFolderTest, AJobWhoseFilesGetNoAnswerFailsInTime) {
  Start({"--stall-timeout=1"});
  const v1::Open open = NamesAHungOutput(spec_, inputs_);
  auto hung = Hang("root/hung");
  const absl::Status status = Run(open).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(wire::ReasonOf(status), "DATA_ROOT_GONE");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--data-root: opening files: no answer within 1000 ms (--stall-timeout)"));
  EXPECT_EQ(Left("data_root"), 1);
  ExpectJobsWithoutFilesGoOn(spec_, inputs_);
  hung.reset();
  EXPECT_TRUE(Eventually([this] { return Left("data_root") == 0; }));
  EXPECT_TRUE(Run(open).ok()) << "it answers again";
  ExpectItEnds(seconds(10));
}

TEST_P(HungFolderTest, AClientThatLeavesTakesItsCallWithIt) {
  Start({"--stall-timeout=600"});
  const v1::Open open = NamesAHungOutput(spec_, inputs_);
  const auto hung = Hang("root/hung");
  const auto call = Call(open);
  ASSERT_NE(call, nullptr);
  std::this_thread::sleep_for(seconds(1));  // by then it is there
  EXPECT_EQ(Left("data_root"), 0) << "somebody waits for it";
  call->Cancel();
  EXPECT_TRUE(Eventually([this] { return Left("data_root") == 1; }));
  ExpectItEnds(seconds(10));
}

TEST_P(HungFolderTest, TheServiceEndsThoughACallWaits) {
  Start({"--stall-timeout=600", "--exit-timeout=1"});
  const v1::Open open = NamesAHungOutput(spec_, inputs_);
  const auto hung = Hang("root/hung");
  const auto call = Call(open);
  ASSERT_NE(call, nullptr);
  std::this_thread::sleep_for(milliseconds(200));
  ExpectItEnds(seconds(10));
  EXPECT_FALSE(call->Finish().ok());
}

// Neither its mark can be removed, nor any file be looked at.
TEST_P(HungFolderTest, TheServiceEndsThoughItsDataRootIsGone) {
  Start({"--stall-timeout=1"});
  const v1::Open open = Write(spec_, inputs_);
  ASSERT_TRUE(Run(open).ok());
  const auto hung = Hang("root");
  EXPECT_EQ(wire::ReasonOf(Run(open).status()), "DATA_ROOT_GONE");
  ExpectJobsWithoutFilesGoOn(spec_, inputs_);
  kill(cluster_->coordinator(), SIGTERM);
  EXPECT_TRUE(Eventually([this] { return cluster_->Processes().empty(); }));
}

TEST_P(HungFolderTest, AModelThatGetsNoAnswerKeepsNoCall) {
  Start({"--model-dir=" + (folder_ / "models")});
  const auto hung = Hang("models/hung");
  EXPECT_EQ(GetModel(seconds(1)), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Eventually([this] { return Left("model_dir") == 1; }));
  const auto stub = v1::EncoderService::NewStub(cluster_->Channel());
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(1));
    v1::ListModelsResponse all;
    EXPECT_EQ(stub->ListModels(&context, {}, &all).error_code(),
              grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(Eventually([this] { return Left("model_dir") == 2; }));
  ExpectJobsWithoutFilesGoOn(spec_, inputs_);
  v1::Open open;
  open.mutable_encode()->set_model("hung");
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(1));
    const auto stream = stub->Encode(&context);
    v1::AttendRequest request;
    *request.mutable_open() = open;
    EXPECT_TRUE(stream->Write(request));
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(Eventually([this] { return Left("model_dir") == 3; }));
  kill(cluster_->coordinator(), SIGTERM);
  EXPECT_TRUE(Eventually([this] { return cluster_->Processes().empty(); }));
}

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// One of whose threads waits for ever, and would be waited for.
void ExpectTheLastResort(Program& program, const std::string& log, milliseconds within) {
  program.Signal(SIGTERM);
  const auto ended = program.AwaitEnd(within);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(*ended, "exit status 4") << TextOf(log);
  EXPECT_THAT(TextOf(log), HasSubstr("a thread does not end"));
}

TEST_P(HungFolderTest, AWorkerEndsThoughItsModelsGetNoAnswer) {
  const auto hung = Hang("models/hung");
  const std::string log = folder_ / "log";
  const auto worker =
      Program::Start({.arguments = {HILBERT_RING_WORKER_BINARY, "--port=0", "--http-port=0",
                                    absl::StrCat("--coordinator=127.0.0.1:", FreePort()),
                                    "--model-dir=" + (folder_ / "models")},
                      .log = log});
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE(
      Eventually([&] { return TextOf(log).find("still being read") != std::string::npos; }));
  ExpectTheLastResort(**worker, log, seconds(20));
}

// Which is opened before anything hears a signal.
TEST_P(HungFolderTest, ACoordinatorThatStillStartsEndsThoughItsDataRootGetsNoAnswer) {
  const auto hung = Hang("root/hung");
  const std::string log = folder_ / "log";
  const auto coordinator = Program::Start(
      {.arguments = {HILBERT_RING_COORDINATOR_BINARY, "--grpc-port=0", "--http-port=0",
                     "--membership-port=0", "--data-root=" + (folder_ / "root/hung")},
       .log = log});
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  ASSERT_TRUE(Eventually([&] {
    return TextOf(absl::StrCat("/proc/", (*coordinator)->pid(), "/status"))
               .find("SigBlk:\t0000000000004002") != std::string::npos;
  })) << "SIGTERM and SIGINT are not blocked";
  ExpectTheLastResort(**coordinator, log, seconds(30));
}

// The file that it removes when it stops. What it was for is over: the process ends as it should.
TEST_P(HungFolderTest, ACoordinatorEndsThoughItsReadyFileGetsNoAnswer) {
  const std::string log = folder_ / "log", ready = folder_ / "models/hung/ready";
  const auto coordinator =
      Program::Start({.arguments = {HILBERT_RING_COORDINATOR_BINARY, "--grpc-port=0",
                                    "--http-port=0", "--membership-port=0", "--spawn-workers=1",
                                    "--exit-timeout=1", "--ready-file=" + ready},
                      .log = log});
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(ready); })) << TextOf(log);
  const auto hung = Hang("models/hung");
  (*coordinator)->Signal(SIGTERM);
  EXPECT_EQ((*coordinator)->AwaitEnd(seconds(30)).value_or("it runs"), "exit status 0");
}

// Where a write waits for ever, and no signal ends that.
class FrozenDiskTest : public ByReferenceTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "root");
    auto disk = FrozenDisk::Make(folder_ / "root");
    if (!disk.ok()) GTEST_SKIP() << disk.status();
    disk_ = *std::move(disk);
  }
  // Calls, and freezes the disk while workers compute. Null, and the test has failed, where they
  // do not.
  std::unique_ptr<RawCall> FreezeAJob(const std::string& stall_timeout) {
    Start({"--stall-timeout=" + stall_timeout});
    open_ = Write(spec_, RandomInputs(spec_, 1));
    auto call = Call(open_);
    const bool frozen = call->AwaitAdmitted() && disk_->Freeze();
    EXPECT_TRUE(frozen);
    return frozen ? std::move(call) : nullptr;
  }

  const JobSpec spec_ = PlainSpec({.tokens = 16384, .heads = 2, .dim = 64, .segment = 8192});
  v1::Open open_;
  std::unique_ptr<FrozenDisk> disk_;
};

INSTANTIATE_TEST_SUITE_P(Places, FrozenDiskTest, ::testing::Values(WorkerPlace::kLocal),
                         [](const auto& info) { return PlaceName(info.param); });

TEST_P(FrozenDiskTest, WorkersThatCannotWriteComputeOtherJobs) {
  const auto call = FreezeAJob("2");
  ASSERT_NE(call, nullptr);
  EXPECT_TRUE(absl::IsUnavailable(call->Finish()));
  const JobSpec other = PlainSpec();
  const auto sent = AttendRaw(*cluster_->Stub(), other, RandomInputs(other, 2), 16, 1);
  EXPECT_TRUE(sent.ok()) << sent.status();
  EXPECT_FALSE(Run(open_).ok());
  ASSERT_TRUE(disk_->Thaw());
  EXPECT_TRUE(Run(open_).ok());
  EXPECT_TRUE(Eventually([this] { return Stray().empty(); }));
  EXPECT_TRUE(cluster_->Stop().ok());
}

// It goes on where it was.
TEST_P(FrozenDiskTest, AJobThatWasFrozenForAMomentEndsWell) {
  const auto call = FreezeAJob("600");
  ASSERT_NE(call, nullptr);
  std::this_thread::sleep_for(seconds(3));
  ASSERT_TRUE(disk_->Thaw());
  const auto report = Finish(*call);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->retries(), 0);
}

}  // namespace
}  // namespace hilbert_ring::testing

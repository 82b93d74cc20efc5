#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "client/cpp/scratch.h"
#include "client/cpp/service.h"
#include "client/cpp/shared_memory_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/run_engine.h"
#include "tests/golden/encoder_case.h"
#include "tests/service/by_reference.h"
#include "tests/service/encode_cases.h"
#include "tests/support/plain_spec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::IsEmpty;

class SharedMemoryTest : public ByReferenceTest {
 protected:
  void SetUp() override {
    if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no file can be made in /dev/shm";
    const absl::Status room = client::CheckMemoryRoom("/dev/shm", 64 << 20);
    if (!room.ok()) GTEST_SKIP() << room;
    in_memory_ = "/dev/shm/hilbert-ring-test-" + std::to_string(getpid());
    std::filesystem::create_directories(in_memory_);
    std::filesystem::create_directory_symlink(in_memory_, folder_ / "root");
  }
  void TearDown() override {
    cluster_.reset();
    if (!in_memory_.empty()) std::filesystem::remove_all(in_memory_);
  }

  std::vector<std::string> Left() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(in_memory_)) {
      const std::string name = entry.path().filename();
      if (name != "in" && !name.ends_with(".root")) names.push_back(name);
    }
    return names;
  }

  std::string Users() const {
    return in_memory_ + "/hilbert-ring-scratch-" + std::to_string(geteuid());
  }

  std::string in_memory_;
};
std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// The tensors must outlive the result.
client::AttendInputs InputsOf(const JobSpec& spec,
                              const std::map<v1::Tensor, std::string>& tensors) {
  return {.spec = spec,
          .q = Bytes(tensors.at(v1::TENSOR_Q)),
          .k = Bytes(tensors.at(v1::TENSOR_K)),
          .v = Bytes(tensors.at(v1::TENSOR_V))};
}

struct Outputs {
  explicit Outputs(const JobSpec& spec)
      : out(static_cast<size_t>(spec.tokens * spec.heads * spec.value_dim *
                                ElementBytes(spec.dtype))),
        lse(static_cast<size_t>(spec.tokens * spec.heads) * sizeof(float)) {}
  std::vector<std::byte> out, lse;
};

TEST_F(SharedMemoryTest, ResultsAreThoseOfRowsThatAreSentAndNoRowPassesTheService) {
  Start();
  JobSpec spec = PlainSpec({.tokens = 3000, .heads = 4, .dim = 16, .segment = 512});
  for (const bool coordinates : {false, true}) {
    if (coordinates) {
      spec.ordering = Ordering{.coordinate_axes = 2};
      spec.alibi = Alibi{{0.25, 0, 1, -0.125}, 3};
    }
    spec.dtype = coordinates ? DataType::kBFloat16 : DataType::kFloat32;
    const EngineInputs random = RandomInputs(spec, 7);
    auto tensors = EncodeTensors(spec, random);
    client::AttendInputs inputs = InputsOf(spec, tensors);
    inputs.bias_coordinates = random.bias_coords;
    inputs.coordinates = [](int64_t first, std::span<uint32_t> values) {
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] =
            static_cast<uint32_t>((static_cast<size_t>(first) * 2 + i) * 2654435761U >> 22U);
      }
    };
    Outputs sent(spec), by_path(spec), small(spec);
    const auto expected = client::Attend(cluster_->address(), inputs, {sent.out, sent.lse});
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_FALSE(expected->by_reference());
    const double received = RowBytesOf(*cluster_).received;
    const auto report = client::AttendSharedMemory(
        cluster_->address(), inputs, {by_path.out, by_path.lse}, {},
        {.least_bytes = 1, .sent = [](const absl::Status& why) { ADD_FAILURE() << why; }});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->by_reference());
    EXPECT_EQ(RowBytesOf(*cluster_).received, received);
    EXPECT_EQ(by_path.out, sent.out);
    EXPECT_EQ(by_path.lse, sent.lse);
    EXPECT_THAT(Left(), IsEmpty());
    const auto short_one =
        client::AttendSharedMemory(cluster_->address(), inputs, {small.out, small.lse});
    ASSERT_TRUE(short_one.ok()) << short_one.status();
    EXPECT_FALSE(short_one->by_reference());
  }
}

TEST_F(SharedMemoryTest, AKilledClientsFilesAreRemovedAndALivingOnesStay) {
  const std::string users = Users();
  std::filesystem::create_directories(users + "/0123456789abcdef");
  std::ofstream(users + "/0123456789abcdef/q") << "rows";
  {
    auto held = client::Scratch::Make(in_memory_, geteuid());
    ASSERT_TRUE(held.ok()) << held.status();
    ASSERT_TRUE(held->Write("k", Bytes("rows")).ok());
    EXPECT_FALSE(std::filesystem::exists(users + "/0123456789abcdef"));
    const auto next = client::Scratch::Make(in_memory_, geteuid());
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_TRUE(std::filesystem::exists(in_memory_ + "/" + held->path("k")));
    std::vector<std::byte> more(5);
    EXPECT_TRUE(absl::IsDataLoss(held->Read("k", more)));
  }
  EXPECT_THAT(Left(), IsEmpty());
}

TEST_F(SharedMemoryTest, OutputsOfAnotherSizeAreRefused) {
  const JobSpec spec = PlainSpec();
  auto tensors = EncodeTensors(spec, RandomInputs(spec, 1));
  const client::AttendInputs inputs = InputsOf(spec, tensors);
  Start();
  for (const auto cut : {&Outputs::out, &Outputs::lse}) {
    Outputs small(spec);
    (small.*cut).pop_back();
    const auto refused = client::AttendSharedMemory(cluster_->address(), inputs,
                                                    {small.out, small.lse}, {}, {.least_bytes = 1});
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  }
}

TEST_F(SharedMemoryTest, TheTimeOfWritingCountsAgainstTheDeadline) {
  Start();
  JobSpec spec = PlainSpec();
  spec.ordering = Ordering{.coordinate_axes = 2};
  auto tensors = EncodeTensors(spec, RandomInputs(spec, 1));
  absl::Time now = absl::Now();
  client::AttendInputs inputs = InputsOf(spec, tensors);
  inputs.coordinates = [&](int64_t, std::span<uint32_t> values) {
    now += absl::Minutes(2);
    std::iota(values.begin(), values.end(), 0U);
  };
  Outputs outputs(spec);
  const auto report = client::AttendSharedMemory(
      cluster_->address(), inputs, {outputs.out, outputs.lse},
      {.deadline = absl::Minutes(1), .timing = {.now = [&] { return now; }}}, {.least_bytes = 1});
  EXPECT_TRUE(absl::IsDeadlineExceeded(report.status())) << report.status();
  EXPECT_THAT(Left(), IsEmpty());
}

class EncoderJob {
 public:
  EncoderJob(const Cluster& cluster, const std::string& name) : golden(*LoadEncoderCase(name)) {
    const auto model = client::RequestModel(cluster.Channel(), name);
    EXPECT_TRUE(model.ok()) << model.status();
    inputs.job = *client::JobOf(*model);
    inputs.job.slide_tiles = golden.slide_tiles;
    inputs.job.outputs.states = {inputs.job.config.layers};
    inputs.tiles = std::as_bytes(std::span(golden.tiles));
    if (golden.coords.empty()) return;
    inputs.coordinates = [this](int64_t first_row, std::span<double> values) {
      std::copy_n(golden.coords.begin() + 2 * first_row, values.size(), values.begin());
    };
  }
  EncoderJob(const EncoderJob&) = delete;
  EncoderJob& operator=(const EncoderJob&) = delete;

  client::EncodeResults Results() {
    rows.assign(Numbers(inputs.job.RowsShape()), -1);
    map.assign(inputs.job.outputs.attention_map ? Numbers(inputs.job.MapShape()) : 0, -1);
    return {.rows = std::as_writable_bytes(std::span(rows)),
            .attention_map = std::as_writable_bytes(std::span(map))};
  }

  const EncoderCase golden;
  client::EncodeInputs inputs;
  std::vector<float> rows, map;

 private:
  static size_t Numbers(const std::vector<int64_t>& shape) {
    return static_cast<size_t>(
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
  }
};

class EncodeSharedMemoryTest : public SharedMemoryTest {
 protected:
  void StartWithModels() { Start({"--model-dir=" + ModelsOfCases()}); }
};
EncoderOutputs OutputsOf(const EncoderJob& job) {
  const int64_t layers = job.inputs.job.config.layers;
  if (!job.golden.attention_map.empty()) {
    return {.states = {layers},
            .pooling = Pooling::kMean,
            .attention_map = AttentionMapOutput{.layer = layers, .columns = MapColumns::kHeads}};
  }
  EncoderOutputs outputs;
  for (int64_t state = 0; state <= layers; ++state) outputs.states.push_back(state);
  return outputs;
}

TEST_F(EncodeSharedMemoryTest, EveryCaseHasTheBitsOfItsSentRowsAndNoRowPassesTheService) {
  StartWithModels();
  int64_t pooled = 0;
  for (const std::string& name : EncoderCaseNames()) {
    SCOPED_TRACE(name);
    EncoderJob job(*cluster_, name);
    job.inputs.job.outputs = OutputsOf(job);
    const RowBytes before = RowBytesOf(*cluster_);
    const auto report = client::EncodeSharedMemory(
        cluster_->address(), job.inputs, job.Results(), {},
        {.least_bytes = 1, .sent = [](const absl::Status& why) { ADD_FAILURE() << why; }});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->by_reference());
    EXPECT_THAT(Left(), IsEmpty());
    const RowBytes after = RowBytesOf(*cluster_);
    EXPECT_EQ(after.received, before.received);
    const bool pools = job.inputs.job.outputs.pooling != Pooling::kNone;
    pooled += pools;
    EXPECT_EQ(after.sent - before.sent, pools ? job.rows.size() * sizeof(float) : 0);
    const std::vector<float> rows = job.rows, map = job.map;
    const auto sent = client::Encode(cluster_->address(), job.inputs, job.Results());
    ASSERT_TRUE(sent.ok()) << sent.status();
    EXPECT_FALSE(sent->by_reference());
    EXPECT_EQ(job.rows, rows);
    EXPECT_EQ(job.map, map);
  }
  EXPECT_GT(pooled, 0);
}

TEST_F(EncodeSharedMemoryTest, AJobWhoseFilesTheServiceDoesNotFindIsSent) {
  StartWithModels();
  EncoderJob job(*cluster_, "slide_small");
  const std::string moved = in_memory_ + "/moved";
  // The client's folder is renamed while the client writes the coordinates.
  job.inputs.coordinates = [&, read = job.inputs.coordinates](int64_t first_row,
                                                              std::span<double> values) {
    std::error_code not_there;
    std::filesystem::rename(Users(), moved, not_there);
    read(first_row, values);
  };
  absl::Status why;
  bool written = false;
  client::SharedMemoryOptions by_path;
  by_path.least_bytes = 1;
  by_path.sent = [&](const absl::Status& status) {
    why = status;
    written = !std::filesystem::is_empty(moved);
  };
  const auto report =
      client::EncodeSharedMemory(cluster_->address(), job.inputs, job.Results(), {}, by_path);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->by_reference());
  EXPECT_TRUE(wire::HasReason(why, wire::reason::kFileNotFound)) << why;
  EXPECT_FALSE(written) << "the files are still there while the job is sent";
  EXPECT_EQ(EncoderMismatch(job.rows, job.golden.out), "");
  EXPECT_THAT(Left(), ::testing::ElementsAre("moved"));
}

}  // namespace
}  // namespace hilbert_ring::testing

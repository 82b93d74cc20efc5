// Tensors in memory, handed to a service whose data root lies in memory.
#include "client/cpp/handed.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "client/cpp/scratch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/run_engine.h"
#include "tests/service/by_reference.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

class HandedTest : public ByReferenceTest {
 protected:
  void SetUp() override {
    const absl::Status room = client::CheckMemoryRoom("/dev/shm", 64 << 20);
    if (!room.ok() || access("/dev/shm", W_OK) != 0) GTEST_SKIP() << room;
    in_memory_ = "/dev/shm/hilbert-ring-test-" + std::to_string(getpid());
    std::filesystem::create_directories(in_memory_);
    // Where Start makes it.
    std::filesystem::create_directory_symlink(in_memory_, folder_ / "root");
  }
  void TearDown() override {
    cluster_.reset();
    if (!in_memory_.empty()) std::filesystem::remove_all(in_memory_);
  }

  // All but the service's mark, and the folder that Start makes.
  std::vector<std::string> Left() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(in_memory_)) {
      const std::string name = entry.path().filename();
      if (name != "in" && !name.ends_with(".root")) names.push_back(name);
    }
    return names;
  }

  std::string in_memory_;
};
INSTANTIATE_TEST_SUITE_P(Places, HandedTest, ::testing::Values(WorkerPlace::kLocal),
                         [](const auto& info) { return PlaceName(info.param); });

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

struct Outputs {
  explicit Outputs(const JobSpec& spec)
      : out(static_cast<size_t>(spec.tokens * spec.heads * spec.value_dim *
                                ElementBytes(spec.dtype))),
        lse(static_cast<size_t>(spec.tokens * spec.heads) * sizeof(float)) {}
  std::vector<std::byte> out, lse;
};

TEST_P(HandedTest, ResultsAreThoseOfRowsThatAreSentAndNoRowPassesTheService) {
  Start();
  JobSpec spec = PlainSpec({.tokens = 3000, .heads = 4, .dim = 16, .segment = 512});
  for (const bool coordinates : {false, true}) {
    if (coordinates) spec.ordering = Ordering{.coordinate_axes = 2};
    spec.dtype = coordinates ? DataType::kBFloat16 : DataType::kFloat32;
    auto tensors = EncodeTensors(spec, RandomInputs(spec, 7));
    client::AttendInputs inputs{.spec = spec,
                                .q = Bytes(tensors.at(v1::TENSOR_Q)),
                                .k = Bytes(tensors.at(v1::TENSOR_K)),
                                .v = Bytes(tensors.at(v1::TENSOR_V))};
    inputs.coordinates = [](int64_t first, std::span<uint32_t> values) {
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] =
            static_cast<uint32_t>((static_cast<size_t>(first) * 2 + i) * 2654435761U >> 22U);
      }
    };
    Outputs sent(spec), handed(spec), small(spec);
    const auto expected = client::Attend(cluster_->address(), inputs, {sent.out, sent.lse});
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_FALSE(expected->by_reference());
    const double received = Metric(*cluster_, "hilbert_ring_received_bytes_total");
    const auto report = client::AttendHanded(
        cluster_->address(), inputs, {handed.out, handed.lse}, {},
        {.least_bytes = 1, .sent = [](const absl::Status& why) { ADD_FAILURE() << why; }});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->by_reference());
    EXPECT_EQ(Metric(*cluster_, "hilbert_ring_received_bytes_total"), received);
    EXPECT_EQ(handed.out, sent.out);
    EXPECT_EQ(handed.lse, sent.lse);
    EXPECT_THAT(Left(), IsEmpty());
    const auto short_one =
        client::AttendHanded(cluster_->address(), inputs, {small.out, small.lse});
    ASSERT_TRUE(short_one.ok()) << short_one.status();
    EXPECT_FALSE(short_one->by_reference());
  }
}

TEST_P(HandedTest, WhatAKilledClientLeftIsRemovedAndWhatOneHoldsStays) {
  const std::string users = in_memory_ + "/hilbert-ring-scratch-" + std::to_string(geteuid());
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

TEST_P(HandedTest, AJobThatCannotBeHandedIsSentAndSaysWhy) {
  Start();
  const JobSpec spec = PlainSpec();
  auto tensors = EncodeTensors(spec, RandomInputs(spec, 1));
  const client::AttendInputs inputs{.spec = spec,
                                    .q = Bytes(tensors.at(v1::TENSOR_Q)),
                                    .k = Bytes(tensors.at(v1::TENSOR_K)),
                                    .v = Bytes(tensors.at(v1::TENSOR_V))};
  Outputs outputs(spec);
  absl::Status why;
  std::filesystem::create_directory_symlink(
      "/", in_memory_ + "/hilbert-ring-scratch-" + std::to_string(geteuid()));
  const auto report = client::AttendHanded(
      cluster_->address(), inputs, {outputs.out, outputs.lse}, {},
      {.least_bytes = 1, .sent = [&](const absl::Status& status) { why = status; }});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->by_reference());
  EXPECT_THAT(std::string(why.message()), Not(IsEmpty()));
}

}  // namespace
}  // namespace hilbert_ring::testing

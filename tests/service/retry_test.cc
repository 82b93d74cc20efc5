// Jobs whose workers are lost, through the client library: what is not held is asked for again.
#include <signal.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/attend.h"
#include "client/cpp/encode.h"
#include "client/cpp/service.h"
#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/service/encode_call.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/sanitizer.h"
#include "wire/codec.h"

namespace hilbert_ring::testing {
namespace {

struct Outputs {
  std::vector<float> out, lse;
  bool operator==(const Outputs&) const = default;
};

std::span<std::byte> Bytes(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

absl::StatusOr<v1::Report> Run(const Cluster& cluster, const JobSpec& spec,
                               const EngineInputs& inputs, Outputs& outputs,
                               client::AttendOptions options) {
  auto tensors = EncodeTensors(spec, inputs);
  outputs.out.assign(spec.tokens * spec.heads * spec.value_dim, 0);
  outputs.lse.assign(spec.tokens * spec.heads, 0);
  options.chunk_bytes = 16 << 10;
  options.deadline = absl::Minutes(5);
  client::AttendInputs attend{.spec = spec,
                              .q = Bytes(tensors[v1::TENSOR_Q]),
                              .k = Bytes(tensors[v1::TENSOR_K]),
                              .v = Bytes(tensors[v1::TENSOR_V])};
  if (!inputs.coords.empty()) {
    attend.coordinates = [&](int64_t first_row, std::span<uint32_t> values) {
      const int64_t axes = spec.ordering->coordinate_axes;
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<uint32_t>(inputs.coords[first_row * axes + i]);
      }
    };
  }
  return client::Attend(client::Connect(cluster.address()), attend,
                        {.out = std::as_writable_bytes(std::span(outputs.out)),
                         .lse = std::as_writable_bytes(std::span(outputs.lse))},
                        options);
}

JobSpec Spec(bool ordered) {
  JobSpec spec = PlainSpec({.tokens = kThreadSanitizer ? 5'000 : 20'000});
  spec.branches = {{2000, 1}, {spec.tokens, 1}};  // a compute that outlives the sending
  if (ordered) spec.ordering = Ordering{.coordinate_axes = 2};
  return spec;
}

bool IsOfEither(const std::vector<float>& values, const std::vector<float>& a,
                const std::vector<float>& b) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != a[i] && values[i] != b[i]) return false;
  }
  return true;
}

// Kills a worker once `share` of the input is sent, and again in the next attempt.
void ExpectSameResult(const std::vector<std::string>& arguments, bool ordered, double share) {
  auto cluster = Cluster::Start({.workers = 2, .arguments = arguments});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const JobSpec spec = Spec(ordered);
  const EngineInputs inputs = RandomInputs(spec, 3);
  Outputs undisturbed, outputs;
  const auto first = Run(**cluster, spec, inputs, undisturbed, {});
  ASSERT_TRUE(first.ok()) << first.status();
  int attempts = 0;
  bool killed = false;
  client::AttendOptions options;
  options.progress = [&](const client::AttendProgress& progress) {
    attempts = std::max(attempts, progress.attempt);
    if (killed || progress.bytes_sent < share * static_cast<double>(progress.bytes_to_send)) return;
    killed = true;
    kill((*cluster)->Workers().at(1), SIGKILL);
  };
  const auto report = Run(**cluster, spec, inputs, outputs, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(killed);
  EXPECT_EQ(attempts, 0);  // the client did not have to try again
  EXPECT_EQ(report->retries(), 1);
  // As many workers merge partial results in the same order, fewer of them in theirs; what had left
  // before is of the first attempt.
  const int workers = report->workers_size();
  if (workers == first->workers_size()) {
    EXPECT_TRUE(outputs == undisturbed);
    return;
  }
  auto fewer = Cluster::Start({.workers = workers});
  ASSERT_TRUE(fewer.ok()) << fewer.status();
  Outputs expected;
  ASSERT_TRUE(Run(**fewer, spec, inputs, expected, {}).ok());
  EXPECT_TRUE(IsOfEither(outputs.out, undisturbed.out, expected.out));
  EXPECT_TRUE(IsOfEither(outputs.lse, undisturbed.lse, expected.lse));
}

TEST(Retry, RowsThatWereLostAreSentAgain) {
  for (const bool ordered : {false, true}) {
    for (const double share : {0.05, 0.5, 1.0}) {
      SCOPED_TRACE(::testing::Message() << "ordered " << ordered << ", killed at " << share);
      ExpectSameResult({"--share-memory=false", "--copy-memory=0"}, ordered, share);
    }
  }
}

TEST(Retry, RowsThatAreHeldAreNot) {
  for (const bool ordered : {false, true}) {
    for (const double share : {0.5, 1.0}) {
      SCOPED_TRACE(::testing::Message() << "ordered " << ordered << ", killed at " << share);
      ExpectSameResult({}, ordered, share);
      ExpectSameResult({"--share-memory=false"}, ordered, share);
    }
  }
}

// Tiles and coordinates of an encoder's job, likewise.
TEST(Retry, TilesThatWereLostAreSentAgain) {
  const auto golden = LoadEncoderCase("slide_three_layers");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const std::string models = std::filesystem::path(golden->folder).parent_path().string();
  const EncodeInputs tiles = ManyTiles(*golden, kThreadSanitizer ? 5'000 : 30'000, 9);
  for (const double share : {0.05, 0.5, 1.0}) {
    SCOPED_TRACE(share);
    auto cluster = Cluster::Start(
        {.workers = 2,
         .arguments = {"--share-memory=false", "--copy-memory=0", "--model-dir=" + models}});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const auto channel = client::Connect((*cluster)->address());
    const auto model = client::RequestModel(channel, golden->name);
    ASSERT_TRUE(model.ok()) << model.status();
    auto job = client::JobOf(*model);
    ASSERT_TRUE(job.ok()) << job.status();
    job->slide_tiles = {tiles.count};
    job->outputs = {.states = {job->config.layers}, .pooling = Pooling::kMean};
    const client::EncodeInputs inputs{
        .job = *job,
        .tiles = std::as_bytes(std::span(tiles.tiles)),
        .coordinates = [&](int64_t first_row, std::span<double> values) {
          std::copy_n(tiles.coords.begin() + 2 * first_row, values.size(), values.begin());
        }};
    const auto encode = [&](const client::JobOptions& options, std::vector<float>& pooled) {
      pooled.assign(static_cast<size_t>(job->config.embed_dim), 0);
      return client::Encode(channel, inputs, {.rows = std::as_writable_bytes(std::span(pooled))},
                            options);
    };
    std::vector<float> undisturbed, pooled;
    const auto first = encode({.chunk_bytes = 16 << 10}, undisturbed);
    ASSERT_TRUE(first.ok()) << first.status();
    bool killed = false;
    int attempts = 0;
    client::JobOptions options{.chunk_bytes = 16 << 10};
    options.progress = [&](const client::AttendProgress& progress) {
      attempts = std::max(attempts, progress.attempt);
      if (killed || progress.bytes_sent < share * static_cast<double>(progress.bytes_to_send)) {
        return;
      }
      killed = true;
      kill((*cluster)->Workers().at(1), SIGKILL);
    };
    const auto report = encode(options, pooled);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(killed);
    EXPECT_EQ(attempts, 0);
    EXPECT_EQ(report->retries(), 1);
    EXPECT_EQ(EncoderMismatch(pooled, undisturbed), "");
  }
}

}  // namespace
}  // namespace hilbert_ring::testing

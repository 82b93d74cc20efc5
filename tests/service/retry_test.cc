// Jobs whose workers are lost, through the client library: what is not held is asked for again.
#include <signal.h>

#include <string>
#include <tuple>
#include <vector>

#include "client/cpp/attend.h"
#include "client/cpp/encode.h"
#include "client/cpp/service.h"
#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/service/encode_cases.h"
#include "tests/service/raw_call.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"
#include "tests/support/sanitizer.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

struct Outputs {
  std::vector<float> out, lse;
  bool operator==(const Outputs&) const = default;
};

std::span<std::byte> Bytes(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

// Kills a worker once a share of the input is sent.
class Kill {
 public:
  Kill(const Cluster& cluster, double share) : cluster_(cluster), share_(share) {}

  client::JobOptions Options() {
    client::JobOptions options{.deadline = absl::Minutes(5), .chunk_bytes = 16 << 10};
    options.progress = [this](const client::AttendProgress& progress) {
      attempts_ = std::max(attempts_, progress.attempt);
      const double due = share_ * static_cast<double>(progress.bytes_to_send);
      if (killed_ || static_cast<double>(progress.bytes_sent) < due) return;
      killed_ = true;
      kill(cluster_.Workers().at(1), SIGKILL);
    };
    return options;
  }

  // The service tried again, and the client did not have to.
  void ExpectRetried(const absl::StatusOr<v1::Report>& report) const {
    EXPECT_TRUE(killed_);
    EXPECT_EQ(attempts_, 0);
    EXPECT_EQ(report.value().retries(), 1);
  }

 private:
  const Cluster& cluster_;
  const double share_;
  bool killed_ = false;
  int attempts_ = 0;
};

absl::StatusOr<v1::Report> Run(const Cluster& cluster, const JobSpec& spec,
                               const EngineInputs& inputs, Outputs& outputs,
                               const client::JobOptions& options) {
  auto tensors = EncodeTensors(spec, inputs);
  outputs.out.assign(spec.tokens * spec.heads * spec.value_dim, 0);
  outputs.lse.assign(spec.tokens * spec.heads, 0);
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

using Case = std::tuple<bool, double>;  // whether rows are ordered, and the share that is sent

void ExpectSameResult(const std::vector<std::string>& arguments, const Case& one) {
  const auto [ordered, share] = one;
  SCOPED_TRACE(::testing::Message() << "ordered " << ordered << ", killed at " << share);
  const auto cluster = Cluster::Start({.workers = 2, .arguments = arguments}).value();
  const JobSpec spec = Spec(ordered);
  const EngineInputs inputs = RandomInputs(spec, 3);
  Outputs undisturbed, outputs;
  const auto first = Run(*cluster, spec, inputs, undisturbed, {});
  ASSERT_TRUE(first.ok()) << first.status();
  Kill lost(*cluster, share);
  const auto report = Run(*cluster, spec, inputs, outputs, lost.Options());
  lost.ExpectRetried(report);
  // As many workers merge partial results in the same order, fewer of them in theirs; what had left
  // before is of the first attempt.
  const int workers = report->workers_size();
  if (workers == first->workers_size()) {
    EXPECT_TRUE(outputs == undisturbed);
    return;
  }
  const auto fewer = Cluster::Start({.workers = workers}).value();
  Outputs expected;
  ASSERT_TRUE(Run(*fewer, spec, inputs, expected, {}).ok());
  EXPECT_TRUE(IsOfEither(outputs.out, undisturbed.out, expected.out));
  EXPECT_TRUE(IsOfEither(outputs.lse, undisturbed.lse, expected.lse));
}

const std::vector<Case> kAll = {{false, 0.05}, {false, 0.5}, {false, 1},
                                {true, 0.05},  {true, 0.5},  {true, 1}};

TEST(Retry, RowsThatWereLostAreSentAgain) {
  const std::vector<Case> few = {{false, 0.05}, {true, 0.5}, {false, 1}};
  for (const Case& one : AtDepth(few, few, kAll)) {
    ExpectSameResult({"--share-memory=false", "--copy-memory=0"}, one);
  }
}

TEST(Retry, RowsThatAreHeldAreNot) {
  for (const Case& one : AtDepth({{true, 0.5}}, {{true, 0.5}}, kAll)) ExpectSameResult({}, one);
  for (const Case& one : AtDepth({{false, 1}}, {{false, 1}}, kAll)) {
    ExpectSameResult({"--share-memory=false"}, one);
  }
}

// Tiles and coordinates of an encoder's job, likewise.
TEST(Retry, TilesThatWereLostAreSentAgain) {
  const EncoderCase golden = LoadEncoderCase("slide_three_layers").value();
  const EncodeInputs tiles = ManyTiles(golden, kThreadSanitizer ? 5'000 : 30'000, 9);
  for (const double share : AtDepth<std::vector<double>>({0.5}, {0.5}, {0.05, 0.5, 1})) {
    SCOPED_TRACE(share);
    const auto cluster = Cluster::Start({.workers = 2,
                                         .arguments = {"--share-memory=false", "--copy-memory=0",
                                                       "--model-dir=" + ModelsOfCases()}})
                             .value();
    const auto channel = client::Connect(cluster->address());
    client::EncodeJob job =
        client::JobOf(client::RequestModel(channel, golden.name).value()).value();
    job.slide_tiles = {tiles.count};
    job.outputs = {.states = {job.config.layers}, .pooling = Pooling::kMean};
    const client::EncodeInputs inputs{
        .job = job,
        .tiles = std::as_bytes(std::span(tiles.tiles)),
        .coordinates = [&](int64_t first_row, std::span<double> values) {
          std::copy_n(tiles.coords.begin() + 2 * first_row, values.size(), values.begin());
        }};
    const auto encode = [&](const client::JobOptions& options, std::vector<float>& pooled) {
      pooled.assign(static_cast<size_t>(job.config.embed_dim), 0);
      return client::Encode(channel, inputs, {.rows = std::as_writable_bytes(std::span(pooled))},
                            options);
    };
    std::vector<float> undisturbed, pooled;
    ASSERT_TRUE(encode({.chunk_bytes = 16 << 10}, undisturbed).ok());
    Kill lost(*cluster, share);
    lost.ExpectRetried(encode(lost.Options(), pooled));
    EXPECT_EQ(EncoderMismatch(pooled, undisturbed), "");
  }
}

}  // namespace
}  // namespace hilbert_ring::testing

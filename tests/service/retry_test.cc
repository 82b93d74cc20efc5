#include <signal.h>

#include <algorithm>
#include <vector>

#include "client/cpp/attend.h"
#include "client/cpp/encode.h"
#include "client/cpp/service.h"
#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/service/encode_cases.h"
#include "tests/support/cluster.h"
#include "tests/support/sanitizer.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

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
    bool killed = false;
    int attempts = 0;
    client::JobOptions options{.deadline = absl::Minutes(5), .chunk_bytes = 16 << 10};
    options.progress = [&](const client::AttendProgress& progress) {
      attempts = std::max(attempts, progress.attempt);
      const double due = share * static_cast<double>(progress.bytes_to_send);
      if (killed || static_cast<double>(progress.bytes_sent) < due) return;
      killed = true;
      kill(cluster->Workers().at(1), SIGKILL);
    };
    const auto report = encode(options, pooled);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(killed);
    EXPECT_EQ(attempts, 0) << "the service retries, not the client";
    EXPECT_EQ(report->retries(), 1);
    EXPECT_EQ(EncoderMismatch(pooled, undisturbed), "");
  }
}

}  // namespace
}  // namespace hilbert_ring::testing

// Workers that do not hand over what the coordinator puts together of an encoder's rows, or keeps:
// the job ends on the others, and each result leaves once.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/job/pooled_parts.h"
#include "server/job/served_job.h"
#include "tests/golden/encoder_case.h"
#include "tests/unit/job/job_rig.h"
#include "wire/checksum.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using testing::FakeWorker;
using ::testing::HasSubstr;
using testing::Moment;

constexpr char kSlidesModel[] = "slides_packed";
constexpr int kTileDim = 24, kDim = 64, kLayers = 2;
// Too many for all layers to be computed again.
constexpr int64_t kManyTiles = 4000;

std::string SlideModels() {
  return std::filesystem::path(testing::LoadEncoderCase(kSlidesModel)->folder)
      .parent_path()
      .string();
}

// Slides of tiles that are zeros, sent at once.
class SlidesClient : public JobClient {
 public:
  explicit SlidesClient(const std::vector<int64_t>& slide_tiles) {
    v1::Open& open = *messages_.emplace_back().mutable_open();
    open.set_job_id("job");
    open.set_can_resend(true);
    v1::EncodeSpec& spec = *open.mutable_encode();
    spec.set_model(kSlidesModel);
    spec.mutable_slide_tiles()->Assign(slide_tiles.begin(), slide_tiles.end());
    spec.set_dtype(v1::DATA_TYPE_FLOAT32);
    spec.set_compute(v1::DATA_TYPE_FLOAT32);
    spec.set_pooling(v1::POOLING_MEAN);
    int64_t tiles = 0;
    for (const int64_t of_slide : slide_tiles) tiles += of_slide;
    constexpr int64_t kPiece = 4096;
    for (const auto& [tensor, row_bytes] :
         {std::pair(v1::TENSOR_TILE_COORDS, 16), {v1::TENSOR_TILES, 4 * kTileDim}}) {
      for (int64_t first = 0; first < tiles; first += kPiece) {
        v1::Chunk& chunk = *messages_.emplace_back().mutable_chunk();
        chunk.set_tensor(tensor);
        chunk.set_first_row(first);
        chunk.set_rows(std::min(kPiece, tiles - first));
        chunk.set_payload(std::string(chunk.rows() * row_bytes, '\0'));
        chunk.set_crc32c(wire::Crc32c(chunk.payload()));
      }
    }
  }

  int pooled() const { return pooled_; }

  JobStop& stop() override { return stop_; }
  void ReadAhead() override {}
  absl::StatusOr<bool> Read(ClientMessage& message, const JobStop& /*stop*/) override {
    if (next_ == std::ssize(messages_)) return false;
    message.request = messages_[next_++];
    if (!message.request.has_chunk()) return true;
    message.request.mutable_chunk()->clear_payload();
    message.payload = wire::Payload(messages_[next_ - 1].chunk().payload());
    return true;
  }
  bool AwaitArrived(int64_t /*bytes*/, Input /*input*/) override { return true; }
  absl::Status Write(const v1::AttendResponse& /*response*/, const JobStop& /*stop*/,
                     Leaves /*leaves*/) override {
    return absl::OkStatus();
  }
  absl::StatusOr<bool> Write(const v1::OutputChunk& chunk, std::string_view /*payload*/,
                             std::shared_ptr<const void> /*owner*/, Clock::duration /*patience*/,
                             const JobStop& /*stop*/, Leaves /*leaves*/) override {
    if (chunk.tensor() == v1::TENSOR_POOLED) pooled_ += static_cast<int>(chunk.rows());
    return true;
  }
  absl::Status AwaitTaken(const JobStop& /*stop*/) override { return absl::OkStatus(); }
  void Offer(const v1::AttendResponse& /*response*/) override {}

 private:
  JobStop stop_;
  std::vector<v1::AttendRequest> messages_;
  int64_t next_ = 0;
  int pooled_ = 0;
};

// A run of a worker whose states are zeros, and that keeps no layer's input. change: of its sums,
// before they leave.
FakeWorker::Action Encode(std::function<void(v1::PooledSums&)> change) {
  return [change = std::move(change)](const FakeWorker::Here& here) {
    v1::RunResponse response;
    response.mutable_ready()->set_shares_memory(false);
    here.stream.Write(response);
    v1::RunRequest request;
    while (!request.has_done()) {
      if (!here.stream.Read(&request)) return grpc::Status::CANCELLED;
    }
    const auto& tiles = here.open.encode().slide_tiles();
    const SlideRows slides(std::vector<int64_t>(tiles.begin(), tiles.end()), 1);
    std::vector<ShardRange> ranges;
    for (const v1::ShardRange& range : here.open.shards()) {
      if (range.rank() != here.open.rank()) continue;
      ranges.push_back({.begin = range.begin(), .end = range.end()});
    }
    const std::vector<int64_t> rows = PooledRowsOf(slides, Pooling::kMean, ranges);
    response.mutable_computed()->set_seconds(1e-3);
    here.stream.Write(response);
    v1::PooledSums& sums = *response.mutable_pooled();
    sums.set_state(kLayers);
    sums.mutable_rows()->Assign(rows.begin(), rows.end());
    sums.set_sums(std::string(rows.size() * kDim * sizeof(double), '\0'));
    change(sums);
    here.stream.Write(response);
    response.mutable_figures()->set_tokens(1);
    here.stream.Write(response);
    return grpc::Status::OK;
  };
}

testing::JobRigOptions RigOptions(int check_rows) {
  testing::JobRigOptions options;
  options.local = false;
  options.models = SlideModels();
  options.settings.check_rows = check_rows;
  const auto model = ModelCatalog(SlideModels()).Open(kSlidesModel, "");
  EXPECT_TRUE(model.ok()) << model.status();
  options.beat.set_model_memory_bytes(int64_t{1} << 30);
  v1::ModelVersion& version = *options.beat.add_models();
  version.set_name(kSlidesModel);
  version.set_digest(model->digest());
  return options;
}

absl::StatusOr<v1::Report> RunJob(testing::JobRig& rig, SlidesClient& client) {
  std::atomic<bool> ended = false;
  absl::StatusOr<v1::Report> report;
  std::thread job([&] {
    report = ServedJob(rig.services(), client, {.name = "caller", .turns = "caller"}, "",
                       JobMethod::kEncode)
                 .Run();
    ended = true;
  });
  rig.Until([&] { return ended.load(); });
  job.join();
  return report;
}

struct WrongSums {
  const char* name;
  std::function<void(v1::PooledSums&)> change;
  const char* message;
};

class RogueEncoder : public ::testing::TestWithParam<WrongSums> {};

TEST_P(RogueEncoder, WhosePooledSumsAreWrongIsLeftOutAndRests) {
  testing::JobRig rig(RigOptions(0));
  rig.worker(0).AtEach(Moment::kOpened, Encode([](v1::PooledSums&) {}));
  rig.worker(1).AtEach(Moment::kOpened, Encode(GetParam().change));
  SlidesClient client({300, 200, 100});
  const auto report = RunJob(rig, client);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->retries(), 1);
  EXPECT_EQ(report->workers_size(), 1);
  EXPECT_EQ(client.pooled(), 3) << "each slide once";
  EXPECT_EQ(rig.worker(1).runs(), 1);
  EXPECT_EQ(rig.failures(0), 0);
  EXPECT_EQ(rig.failures(1), 1);
  EXPECT_TRUE(rig.backs_off(1));
  EXPECT_THAT(rig.Describe(1).reason(),
              HasSubstr("worker " + rig.worker(1).address() + " " + GetParam().message));
}

// Of 603 tokens worker 1 has the last half: 199 tiles of slide 1 and 100 of slide 2, or about that.
INSTANTIATE_TEST_SUITE_P(
    Sums, RogueEncoder,
    ::testing::Values(
        WrongSums{"ARowTooMany", [](auto& sums) { sums.set_rows(2, sums.rows(2) + 1); },
                  "sent pooled sums of 101 rows of slide 2, must be 0 to 100"},
        WrongSums{"ARowTooFew", [](auto& sums) { sums.set_rows(2, sums.rows(2) - 1); },
                  "sent no pooled sums of 1 of its rows of slide 2"},
        WrongSums{"RowsOfAnother", [](auto& sums) { sums.set_rows(0, 300); },
                  "sent pooled sums of 300 rows of slide 0, must be 0 to 0"},
        WrongSums{"LessThanNone", [](auto& sums) { sums.set_rows(2, -1); },
                  "sent pooled sums of -1 rows of slide 2, must be 0 to 100"},
        WrongSums{"OtherSlides", [](auto& sums) { sums.set_first_slide(1); },
                  "sent pooled sums of 3 slides from slide 1 on, the job has 3"},
        WrongSums{"AnotherState", [](auto& sums) { sums.set_state(0); }, "sent no pooled sums of"}),
    [](const auto& info) { return std::string(info.param.name); });

// Rows are computed again from what the workers keep: both are asked, and neither does.
TEST(RogueEncoders, OneThatDoesNotKeepTheLayerThatIsCheckedIsLeftOut) {
  testing::JobRig rig(RigOptions(16));
  for (const int worker : {0, 1}) {
    rig.worker(worker).AtEach(Moment::kOpened, Encode([](v1::PooledSums&) {}));
  }
  SlidesClient client({kManyTiles});
  const absl::Status status = RunJob(rig, client).status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("worker " + rig.worker(1).address() +
                        " has not kept all its rows of the layer that is checked"));
  EXPECT_EQ(rig.worker(0).runs(), 1);
  EXPECT_EQ(rig.failures(0), 1);
  EXPECT_EQ(rig.failures(1), 1);
  EXPECT_EQ(client.pooled(), 0) << "nothing has left";
}

}  // namespace
}  // namespace hilbert_ring::server

#include "server/job/encode_work.h"

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/model/files/encoder_config.h"
#include "engine/model/files/encoder_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "wire/checksum.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

class EncodeWorkTest : public ::testing::Test {
 protected:
  EncodeWorkTest()
      : golden_(*testing::LoadEncoderCase("slides_packed")),
        models_(std::filesystem::path(golden_.folder).parent_path().string()) {
    spec_.set_model("slides_packed");
    spec_.mutable_slide_tiles()->Assign(golden_.slide_tiles.begin(), golden_.slide_tiles.end());
    spec_.set_dtype(v1::DATA_TYPE_FLOAT32);
    spec_.set_compute(v1::DATA_TYPE_FLOAT32);
    spec_.set_pooling(v1::POOLING_MEAN);
  }

  std::unique_ptr<JobWork> Make() {
    auto work = MakeEncodeWork(spec_, models_, {});
    EXPECT_TRUE(work.ok()) << work.status();
    return *std::move(work);
  }

  // A worker's sums of all tiles of these slides, each number of them `value`.
  v1::PooledSums Sums(const JobWork& work, int64_t first, int64_t end, double value) const {
    v1::PooledSums sums;
    sums.set_state(models_layers());
    sums.set_first_slide(first);
    const auto dim = static_cast<int64_t>(golden_.class_out.size() / golden_.slide_tiles.size());
    const std::vector<double> of_slide(dim, value);
    for (int64_t slide = first; slide < end; ++slide) {
      sums.add_rows(golden_.slide_tiles[slide]);
      sums.mutable_sums()->append(reinterpret_cast<const char*>(of_slide.data()), dim * 8);
    }
    return sums;
  }
  int64_t models_layers() const { return std::ssize(golden_.states) / std::ssize(golden_.out) - 1; }

  static absl::Status Send(JobWork& work, int64_t* rows = nullptr) {
    return work.SendResults([&](const v1::OutputChunk& chunk, std::string_view payload,
                                const std::shared_ptr<const void>&) {
      EXPECT_EQ(chunk.crc32c(), wire::Crc32c(payload));
      if (rows != nullptr) *rows += chunk.rows();
      return absl::OkStatus();
    });
  }

  const testing::EncoderCase golden_;
  ModelCatalog models_;
  v1::EncodeSpec spec_;
};

TEST_F(EncodeWorkTest, SumsOfSeveralWorkersMakeARowOfEachSlide) {
  const auto work = Make();
  const auto slides = std::ssize(golden_.slide_tiles);
  ASSERT_GE(slides, 2);
  EXPECT_TRUE(work->TakePooled(1, Sums(*work, 1, slides, 2)).ok());
  EXPECT_TRUE(work->TakePooled(0, Sums(*work, 0, 1, 1)).ok());
  int64_t rows = 0;
  EXPECT_TRUE(Send(*work, &rows).ok());
  EXPECT_EQ(rows, slides);
  const auto dim = static_cast<int64_t>(golden_.class_out.size()) / slides;
  EXPECT_EQ(work->result_bytes(), slides * dim * (8 + 8 + 4 + 4));
}

TEST_F(EncodeWorkTest, WorkersMayReadLargeWeightsFromASlowDisk) {
  EXPECT_EQ(Make()->start_timeout(), std::chrono::seconds(60));
  EncoderConfig wide = models_.Open("slides_packed")->config();
  wide.ffn_dim = 1 << 16;  // 64.5 MiB in float32, 16 MiB a second
  EXPECT_EQ(LoadTimeout(wide), std::chrono::seconds(64));
}

TEST_F(EncodeWorkTest, MissingSumsAreAWorkersFault) {
  const auto work = Make();
  EXPECT_TRUE(work->TakePooled(0, Sums(*work, 0, 1, 1)).ok());
  EXPECT_TRUE(absl::IsInternal(Send(*work))) << Send(*work);
}

TEST_F(EncodeWorkTest, AnotherExecutionBeginsAnew) {
  const auto work = Make();
  const auto slides = std::ssize(golden_.slide_tiles);
  EXPECT_TRUE(work->TakePooled(0, Sums(*work, 0, slides, 1)).ok());
  work->BeginExecution();
  EXPECT_TRUE(work->TakePooled(0, Sums(*work, 0, slides, 1)).ok());
  EXPECT_TRUE(Send(*work).ok());
}

TEST_F(EncodeWorkTest, RowsAreNotPooledUnlessWanted) {
  spec_.set_pooling(v1::POOLING_NONE);
  const auto work = Make();
  EXPECT_EQ(work->result_bytes(), 0);
  EXPECT_TRUE(work->shape().rows.Has(TensorKind::kStates));
}

TEST_F(EncodeWorkTest, AWorkerNeedsTheVersionAndRoomForIt) {
  const auto work = Make();
  Member member;
  EXPECT_FALSE(work->CanRunOn(member));
  v1::RunOpen open;
  work->Describe(open);
  EXPECT_EQ(open.encode().digest().size(), 64u);
  v1::Heartbeat beat;
  v1::ModelVersion& version = *beat.add_models();
  version.set_name("slides_packed");
  version.set_digest(open.encode().digest());
  member.models.Set(beat.models());
  EXPECT_FALSE(work->CanRunOn(member));
  member.model_memory_bytes = int64_t{1} << 30;
  EXPECT_TRUE(work->CanRunOn(member));
  version.set_digest(std::string(64, '0'));
  member.models.Set(beat.models());
  EXPECT_FALSE(work->CanRunOn(member));
  EXPECT_EQ(wire::ReasonOf(work->NobodyCan()), wire::reason::kModelNotOnWorkers.name);
}

TEST_F(EncodeWorkTest, ResultsThatExceedTheMemoryAreRefused) {
  const auto work = MakeEncodeWork(spec_, models_, {.max_result_bytes = 100});
  EXPECT_TRUE(absl::IsOutOfRange(work.status())) << work.status();
  EXPECT_THAT(std::string(work.status().message()), HasSubstr("--total-order-memory-limit"));
}

TEST_F(EncodeWorkTest, ThePlanCoversTheWholePass) {
  const auto work = Make();
  const auto one = work->MakePlanner(nullptr)(1);
  const auto three = work->MakePlanner(nullptr)(3);
  ASSERT_TRUE(one.ok() && three.ok());
  double flops = 0;
  for (const WorkerCost& cost : three->costs.workers) {
    flops += cost.flops;
    EXPECT_LT(cost.resident_bytes(), one->costs.workers[0].resident_bytes());
  }
  EXPECT_DOUBLE_EQ(flops, three->costs.flops);
  EXPECT_NEAR(three->costs.flops, one->costs.flops, 1e-6 * one->costs.flops);
  const auto layer = MakePlan(work->spec(), 3);
  ASSERT_TRUE(layer.ok());
  EXPECT_EQ(three->costs.bytes_exchanged, models_layers() * layer->costs.bytes_exchanged);
}

}  // namespace
}  // namespace hilbert_ring::server

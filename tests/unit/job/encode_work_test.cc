#include "server/job/encode_work.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/files/encoder_config.h"
#include "engine/model/files/encoder_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/job/served_job.h"
#include "server/schedule/scheduler.h"
#include "tests/golden/encoder_case.h"
#include "tests/unit/job/job_rig.h"
#include "wire/checksum.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

constexpr char kModel[] = "slides_packed";

std::string ModelFolder(const testing::EncoderCase& golden) {
  return std::filesystem::path(golden.folder).parent_path().string();
}

class EncodeWorkTest : public ::testing::Test {
 protected:
  EncodeWorkTest() : golden_(*testing::LoadEncoderCase(kModel)), models_(ModelFolder(golden_)) {
    spec_.set_model(kModel);
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

  v1::Heartbeat Beat(bool bfloat16_products) {
    const auto model = models_.Open(kModel, "");
    EXPECT_TRUE(model.ok()) << model.status();
    v1::Heartbeat beat;
    beat.set_model_memory_bytes(int64_t{1} << 30);
    beat.set_bfloat16_products(bfloat16_products);
    v1::ModelVersion& version = *beat.add_models();
    version.set_name(kModel);
    version.set_digest(model->digest());
    return beat;
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
  work->TakePooled(1, Sums(*work, 1, slides, 2));
  work->TakePooled(0, Sums(*work, 0, 1, 1));
  int64_t rows = 0;
  EXPECT_TRUE(Send(*work, &rows).ok());
  EXPECT_EQ(rows, slides);
  const auto dim = static_cast<int64_t>(golden_.class_out.size()) / slides;
  EXPECT_EQ(work->result_bytes(), slides * dim * (8 + 8 + 4 + 4));
}

TEST_F(EncodeWorkTest, WorkersMayReadLargeWeightsFromASlowDisk) {
  EXPECT_EQ(Make()->start_timeout(), std::chrono::seconds(60));
  EncoderConfig wide = models_.Open(kModel, "")->config();
  wide.ffn_dim = 1 << 16;  // 64.5 MiB in float32, 16 MiB a second
  EXPECT_EQ(LoadTimeout(wide), std::chrono::seconds(64));
}

TEST_F(EncodeWorkTest, MissingSumsAreAWorkersFault) {
  const auto work = Make();
  work->TakePooled(0, Sums(*work, 0, 1, 1));
  EXPECT_TRUE(absl::IsInternal(Send(*work))) << Send(*work);
}

TEST_F(EncodeWorkTest, AnotherExecutionBeginsAnew) {
  const auto work = Make();
  const auto slides = std::ssize(golden_.slide_tiles);
  work->TakePooled(0, Sums(*work, 0, slides, 1));
  work->BeginExecution();
  work->TakePooled(0, Sums(*work, 0, slides, 1));
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
  v1::Heartbeat beat = Beat(true);
  EXPECT_EQ(open.encode().digest(), beat.models(0).digest());
  member.models.Set(beat.models());
  EXPECT_FALSE(work->CanRunOn(member));
  member.model_memory_bytes = int64_t{1} << 30;
  EXPECT_TRUE(work->CanRunOn(member));
  beat.mutable_models(0)->set_digest(std::string(64, '0'));
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

// Workers with products of bfloat16 hold its numbers in two bytes, others in four: the memory of
// rows and weights decides which of them gets an encoder's job.
class EncodeAdmission : public EncodeWorkTest {
 protected:
  EncodeAdmission() {
    spec_.clear_slide_tiles();
    spec_.add_slide_tiles(5000);
    spec_.set_compute(v1::DATA_TYPE_BFLOAT16);
  }

  JobSize SizeOnOne() {
    const auto sizes = SizesOf(Make()->MakePlanner(nullptr), 1, 1, 1e12);
    EXPECT_TRUE(sizes.ok()) << sizes.status();
    return sizes->front();
  }

  int64_t Between() {
    const JobSize size = SizeOnOne();
    return size.bytes + size.widened_bytes / 2;
  }

  absl::Status Try(bool bfloat16_products, int64_t limit) {
    testing::JobRigOptions options;
    options.workers = 1;
    options.models = ModelFolder(golden_);
    options.beat = Beat(bfloat16_products);
    options.beat.set_memory_limit_bytes(limit);
    testing::JobRig rig(options);
    v1::Open open;
    *open.mutable_encode() = spec_;
    testing::OpeningClient client(std::move(open));
    return ServedJob(rig.services(), client, {.name = "caller", .turns = "caller"}, "",
                     JobMethod::kEncode)
        .Try();
  }

  std::shared_ptr<Member> MakeMember(const std::string& address, bool bfloat16_products) {
    auto member = std::make_shared<Member>();
    member->address = address;
    member->memory_limit_bytes = Between();
    member->bfloat16_products = bfloat16_products;
    return member;
  }
};

TEST_F(EncodeAdmission, AJobMayFitOneKindOfWorkerOnly) {
  EXPECT_GT(SizeOnOne().widened_bytes, 0);
  EXPECT_TRUE(Try(true, Between()).ok()) << Try(true, Between());
  const absl::Status refused = Try(false, Between());
  EXPECT_EQ(wire::ReasonOf(refused), wire::reason::kDoesNotFit.name) << refused;
  const JobSize size = SizeOnOne();
  EXPECT_TRUE(Try(false, size.bytes + size.widened_bytes).ok());
  EXPECT_FALSE(Try(true, size.bytes - 1).ok());
}

TEST_F(EncodeAdmission, AJobIsPlacedOnAWorkerThatHoldsIt) {
  const auto widens = MakeMember("widens", false), narrow = MakeMember("narrow", true);
  Members live{widens};
  Scheduler scheduler([&live] { return live; }, 8);
  auto place = scheduler.Enter({.caller = "caller", .sizes = {SizeOnOne()}});
  ASSERT_TRUE(place.ok()) << place.status();
  const JobStop stop;
  const auto now = [&] { return place->Await(stop, Deadline::min(), [](int) {}); };
  EXPECT_FALSE(now().ok()) << "it does not fit there";
  live.push_back(narrow);
  scheduler.Changed();
  const auto grant = now();
  ASSERT_TRUE(grant.ok()) << grant.status();
  ASSERT_EQ(grant->members.size(), 1u);
  EXPECT_EQ(grant->members[0]->address, "narrow");
}

TEST_F(EncodeAdmission, WeightsAreCountedAsTheWorkerHoldsThem) {
  const auto model = models_.Open(kModel, "");
  ASSERT_TRUE(model.ok()) << model.status();
  const int64_t narrow = WeightBytes(model->config(), DataType::kBFloat16);
  const int64_t wide = WeightBytes(model->config(), DataType::kFloat32);
  ASSERT_LT(narrow, wide);
  const auto work = Make();
  const auto takes = [&](bool products, int64_t model_memory) {
    Member member;
    member.models.Set(Beat(products).models());
    member.bfloat16_products = products;
    member.model_memory_bytes = model_memory;
    return work->CanRunOn(member);
  };
  EXPECT_TRUE(takes(true, narrow));
  EXPECT_FALSE(takes(true, narrow - 1));
  EXPECT_FALSE(takes(false, wide - 1));
  EXPECT_TRUE(takes(false, wide));
  EXPECT_THAT(std::string(work->NobodyCan().message()),
              HasSubstr("on a processor without products of bfloat16"));
}

}  // namespace
}  // namespace hilbert_ring::server

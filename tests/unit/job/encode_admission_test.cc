// Workers with products of bfloat16 hold its numbers in two bytes, others in four: the memory of
// rows and weights decides which of them gets an encoder's job.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "engine/model/files/encoder_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/job/encode_work.h"
#include "server/job/served_job.h"
#include "server/schedule/scheduler.h"
#include "tests/golden/encoder_case.h"
#include "tests/unit/job/job_rig.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

constexpr char kModel[] = "slides_packed";

std::string Models() {
  return std::filesystem::path(testing::LoadEncoderCase(kModel)->folder).parent_path().string();
}

class EncodeAdmission : public ::testing::Test {
 protected:
  EncodeAdmission() : models_(Models()) {
    spec_.set_model(kModel);
    spec_.add_slide_tiles(5000);
    spec_.set_dtype(v1::DATA_TYPE_FLOAT32);
    spec_.set_compute(v1::DATA_TYPE_BFLOAT16);
    spec_.set_pooling(v1::POOLING_MEAN);
  }

  std::unique_ptr<JobWork> Work() {
    auto work = MakeEncodeWork(spec_, models_, {});
    EXPECT_TRUE(work.ok()) << work.status();
    return *std::move(work);
  }

  JobSize SizeOnOne() {
    const auto sizes = SizesOf(Work()->MakePlanner(nullptr), 1, 1, 1e12);
    EXPECT_TRUE(sizes.ok()) << sizes.status();
    return sizes->front();
  }

  int64_t Between() {
    const JobSize size = SizeOnOne();
    return size.bytes + size.widened_bytes / 2;
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

  absl::Status Try(bool bfloat16_products, int64_t limit) {
    testing::JobRigOptions options;
    options.workers = 1;
    options.models = Models();
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

  ModelCatalog models_;
  v1::EncodeSpec spec_;
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
  const auto work = Work();
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

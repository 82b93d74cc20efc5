#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/cpu/machine.h"
#include "engine/device/device.h"
#include "engine/run/shard_store.h"
#include "gtest/gtest.h"
#include "server/worker/model_store.h"
#include "server/worker/run_work.h"
#include "tests/golden/encoder_case.h"

namespace hilbert_ring::server {
namespace {

class EncodeRunTest : public ::testing::Test {
 protected:
  EncodeRunTest()
      : models_(ModelFolder(), int64_t{1} << 30), device_(*MakeDevice({.threads = 1})) {}

  static std::string ModelFolder() {
    return std::filesystem::path(testing::LoadEncoderCase(kModel)->folder).parent_path().string();
  }

  static v1::RunOpen OpenOf(const std::vector<int64_t>& slide_tiles,
                            const std::vector<int64_t>& states,
                            v1::DataType compute = v1::DATA_TYPE_FLOAT32) {
    v1::RunOpen open;
    v1::EncodeSpec& spec = *open.mutable_encode();
    spec.set_model(kModel);
    spec.mutable_slide_tiles()->Assign(slide_tiles.begin(), slide_tiles.end());
    spec.set_dtype(v1::DATA_TYPE_FLOAT32);
    spec.set_compute(compute);
    spec.set_pooling(v1::POOLING_MEAN);
    spec.mutable_states()->Assign(states.begin(), states.end());
    int64_t tokens = std::ssize(slide_tiles);
    for (const int64_t tiles : slide_tiles) tokens += tiles;
    open.set_workers(1);
    open.add_shards()->set_end(tokens);
    return open;
  }

  void Make(const std::vector<int64_t>& slide_tiles, const std::vector<int64_t>& states,
            v1::DataType compute = v1::DATA_TYPE_FLOAT32) {
    auto run = MakeEncodeRun(OpenOf(slide_tiles, states, compute), models_, 1);
    ASSERT_TRUE(run.ok()) << run.status();
    run_ = *std::move(run);
    const absl::Status read = run_->Read(nullptr);
    ASSERT_TRUE(read.ok()) << read;
    auto store = ShardStore::Make(*device_, run_->plan(), 0);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    for (const TensorKind tensor : {TensorKind::kTiles, TensorKind::kTileCoords}) {
      std::memset(store_->Row(tensor, 0), 0,
                  static_cast<size_t>(store_->rows() * store_->layout().RowBytes(tensor)));
    }
    const absl::Status prepared = run_->Prepare(*device_, nullptr);
    ASSERT_TRUE(prepared.ok()) << prepared;
  }

  absl::StatusOr<Figures> Execute(ExecuteControl control) {
    return run_->Execute(*store_, *device_, nullptr, 1, {.execute = std::move(control)});
  }

  static constexpr char kModel[] = "slides_packed";
  ModelStore models_;
  const std::unique_ptr<Device> device_;
  std::unique_ptr<RunWork> run_;
  std::unique_ptr<ShardStore> store_;
};

TEST_F(EncodeRunTest, ReportsTilesThatItPlacesAndIsCancelledThere) {
  Make({10'000}, {2});
  std::atomic<double> reported = 0;
  std::atomic<bool> cancelled = false;
  int pieces = 0;
  const auto figures = Execute({.cancelled = [&] { return cancelled.load(); },
                                .progress = [&](double fraction) { reported = fraction; },
                                .await_rows =
                                    [&](int64_t rows) {
                                      if (++pieces == 2) cancelled = true;
                                      return absl::OkStatus();
                                    }});
  EXPECT_TRUE(absl::IsCancelled(figures.status())) << figures.status();
  EXPECT_EQ(pieces, 2) << "of three";
  EXPECT_GT(reported, 0);
  EXPECT_LT(reported, 0.5);
}

TEST_F(EncodeRunTest, SumsThatItKeepsArePlanned) {
  Make(std::vector<int64_t>(3000, 1), {0, 1, 2});
  const auto three = Execute({});
  ASSERT_TRUE(three.ok()) << three.status();
  int64_t kept = 0;
  for (const v1::PooledSums& sums : run_->TakePooled()) {
    kept += std::ssize(sums.sums()) + int64_t{8} * sums.rows_size();
  }
  const int64_t planned = run_->cost().resident_bytes();
  const int64_t of_one_state = kept / 3;
  Make(std::vector<int64_t>(3000, 1), {2});
  const auto one = Execute({});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(planned - run_->cost().resident_bytes(), 2 * of_one_state);
  EXPECT_EQ(three->memory_peak_bytes - one->memory_peak_bytes, 2 * of_one_state);
}

// A finished job frees its model's memory a moment later.
TEST_F(EncodeRunTest, AModelWithoutRoomYetIsReadInItsTurn) {
  Make({10}, {2});
  ModelStore of_one(ModelFolder(), models_.bytes());
  auto before = MakeEncodeRun(OpenOf({10}, {2}), of_one, 1);
  auto run = MakeEncodeRun(OpenOf({10}, {2}, v1::DATA_TYPE_BFLOAT16), of_one, 1);
  ASSERT_TRUE(before.ok() && run.ok());
  ASSERT_TRUE((*before)->Read(nullptr).ok());
  ASSERT_EQ(of_one.count(), 1) << "it is read before its turn";
  absl::Status read = (*run)->Read(nullptr);
  EXPECT_TRUE(read.ok()) << read;
  EXPECT_TRUE(absl::IsResourceExhausted((*run)->Prepare(*device_, nullptr)));
  before->reset();
  absl::Status prepared = (*run)->Prepare(*device_, nullptr);
  EXPECT_TRUE(prepared.ok()) << prepared;
}

TEST_F(EncodeRunTest, BlocksArePlannedAsTheProcessorTakesThem) {
  Make({1000}, {2}, v1::DATA_TYPE_BFLOAT16);
  const WorkerCost& cost = run_->cost();
  const bool products = models_.ProductsOf(DataType::kBFloat16) == DataType::kBFloat16;
  EXPECT_EQ(cost.widened_bytes > 0, products) << "else it is counted with the rest";
  const int64_t planned = cost.resident_bytes();
  const auto figures = Execute({});
  ASSERT_TRUE(figures.ok()) << figures.status();
  const double unmeasured = AllowAmxBFloat16() ? 0.05 : 0;  // oneDNN's scratch with AMX
  EXPECT_LE(static_cast<double>(figures->memory_peak_bytes),
            (1 + unmeasured) * static_cast<double>(planned));
  EXPECT_GE(static_cast<double>(figures->memory_peak_bytes), 0.95 * static_cast<double>(planned));
}

}  // namespace
}  // namespace hilbert_ring::server

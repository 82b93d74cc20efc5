// Memory and calls of a GPU that an encoder uses.
#include <algorithm>
#include <atomic>
#include <memory>

#include "engine/base/return_if_error.h"
#include "engine/model/encoder_rank.h"
#include "gtest/gtest.h"
#include "tests/engine/load_encoder.h"
#include "tests/golden/encoder_case.h"
#include "tests/unit/device/forwarding_device.h"

namespace hilbert_ring::testing {
namespace {

struct Account {
  std::atomic<int64_t> now = 0, most = 0;
};

class CountedBuffer : public Buffer {
 public:
  CountedBuffer(std::unique_ptr<Buffer> buffer, Account& account)
      : buffer_(std::move(buffer)), account_(account) {
    account_.now += bytes();
    account_.most = std::max(account_.most.load(), account_.now.load());
  }
  ~CountedBuffer() override { account_.now -= bytes(); }
  std::byte* data() override { return buffer_->data(); }
  int64_t bytes() const override { return buffer_->bytes(); }

 private:
  const std::unique_ptr<Buffer> buffer_;
  Account& account_;
};

class CountedDevice : public ForwardingDevice {
 public:
  CountedDevice(std::unique_ptr<Device> device, Account& account)
      : ForwardingDevice(std::move(device)), account_(account) {}

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    auto buffer = device().Allocate(bytes);
    if (!buffer.ok()) return buffer.status();
    return std::make_unique<CountedBuffer>(*std::move(buffer), account_);
  }

  Device& inner() { return device(); }

 private:
  Account& account_;
};

class EncoderOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    golden_ = LoadEncoderCase("slide_small").value();
    device_ =
        std::make_unique<CountedDevice>(MakeDevice(OptionsFor("cuda/native", 0)).value(), account_);
  }

  absl::StatusOr<std::shared_ptr<const EncoderModel>> Load(
      DataType compute = DataType::kFloat32) const {
    return LoadEncoder(golden_.folder, {.compute = compute, .device = device_.get()});
  }

  absl::StatusOr<EncoderFigures> Run(std::shared_ptr<const EncoderModel> model,
                                     const EncoderPlan& plan, const EncoderOutputs& outputs) {
    ASSIGN_OR_RETURN(const auto rank,
                     EncoderRank::Make(std::move(model), plan, 0, *device_, outputs));
    const int64_t tiles = plan.rows.tiles();
    // The test's own memory is not counted.
    auto values = device_->inner().Allocate(std::ssize(golden_.tiles) * sizeof(float)).value();
    RETURN_IF_ERROR(device_->CopyIn(values->data(), golden_.tiles.data(), values->bytes()));
    RETURN_IF_ERROR(
        rank->PlaceTiles({.count = tiles, .values = values->data(), .coords = golden_.coords}, {}));
    return rank->Run(nullptr, 0,
                     {.rows = [](const StateRows&) { return absl::OkStatus(); },
                      .pooled = [](int64_t, const PooledPart&) { return absl::OkStatus(); }});
  }

  EncoderPlan PlanOf(const EncoderModel& model) const {
    EncoderPlan plan =
        MakeEncoderPlan(model.config(), model.compute(), golden_.slide_tiles, 1).value();
    KeepListsOf(0, plan.attention);
    return plan;
  }

  Account account_;
  EncoderCase golden_;
  std::unique_ptr<CountedDevice> device_;
};

TEST_F(EncoderOnGpu, MemoryIsWhatThePlanSaysAndIsGivenBack) {
  for (const DataType compute : {DataType::kFloat32, DataType::kBFloat16}) {
    const auto model = Load(compute).value();
    const int64_t of_weights = account_.now;
    EXPECT_EQ(of_weights, DeviceWeightBytes(model->config(), compute));
    EXPECT_EQ(model->bytes(),
              PackedBytes(model->config(), {.compute = compute, .device = device_.get()}).value());
    EXPECT_GE(model->bytes(), of_weights);
    EXPECT_FALSE(model->shared());
    const EncoderPlan plan = PlanOf(*model);
    for (const Pooling pooling : {Pooling::kNone, Pooling::kMean}) {
      const EncoderOutputs outputs{.states = {model->config().layers}, .pooling = pooling};
      account_.most = 0;
      const auto figures = Run(model, plan, outputs);
      ASSERT_TRUE(figures.ok()) << figures.status();
      EXPECT_EQ(account_.now, of_weights) << "not all was given back, or weights were copied";
      const EncoderMemory planned = MemoryOf(plan, 0, 0, compute, outputs);
      const int64_t of_job = account_.most - of_weights;
      EXPECT_LE(of_job, planned.total());
      EXPECT_GE(of_job, planned.total() - planned.output_bytes - planned.attention_bytes);
      EXPECT_LE(figures->memory_peak_bytes, planned.total());
      EXPECT_GE(figures->memory_peak_bytes, of_job);
    }
  }
  EXPECT_EQ(account_.now, 0) << "of weights";
}

}  // namespace
}  // namespace hilbert_ring::testing

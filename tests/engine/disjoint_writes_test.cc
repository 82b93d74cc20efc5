// Tasks of one call to the device write different elements, so that it may compute them at once. An
// overlap is a race, which seldom changes a result.
#include <memory>
#include <random>
#include <string>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "engine/spec/job_spec_json.h"
#include "gtest/gtest.h"
#include "tests/engine/run_engine.h"
#include "tests/random/random_spec.h"
#include "tests/support/plain_spec.h"
#include "tests/unit/device/forwarding_device.h"

namespace hilbert_ring::testing {
namespace {

// The rows of one call's tasks, by the address of each row and head.
class Written {
 public:
  template <typename View>
  bool Add(const View& view, const void* data, int64_t element_bytes, int64_t batch, int64_t rows,
           int64_t heads) {
    bool fresh = true;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t head = 0; head < heads; ++head) {
          const int64_t element =
              b * view.batch_stride + row * view.row_stride + head * view.head_stride;
          fresh &= addresses_.insert(static_cast<const std::byte*>(data) + element * element_bytes)
                       .second;
        }
      }
    }
    return fresh;
  }

 private:
  std::unordered_set<const void*> addresses_;
};

class WatchedDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                       const AttendControl& control) override {
    Written out, state;
    for (const AttentionTask& task : tasks) {
      const bool merges = task.result == Result::kMerge;
      const int64_t bytes = merges ? sizeof(float) : ElementBytes(task.out_dtype);
      bool fresh = out.Add(task.out, task.out.data, bytes, task.batch, task.query_rows, task.heads);
      if (merges) {
        fresh &= state.Add(task.state, task.state.sum, sizeof(float), task.batch, task.query_rows,
                           task.heads);
      }
      if (!fresh) return absl::InternalError("attention tasks of one call write the same element");
    }
    return ForwardingDevice::Attend(tasks, control);
  }

  absl::Status Merge(std::span<const MergeTask> tasks) override {
    Written out, state;
    for (const MergeTask& task : tasks) {
      const bool fresh =
          out.Add(task.out, task.out.data, sizeof(float), task.batch, task.rows, task.heads) &&
          state.Add(task.state, task.state.sum, sizeof(float), task.batch, task.rows, task.heads);
      if (!fresh) return absl::InternalError("zero keys of one call are added to the same element");
    }
    return ForwardingDevice::Merge(tasks);
  }

  absl::Status Finalize(std::span<const FinalizeTask> tasks) override {
    Written out, lse;
    for (const FinalizeTask& task : tasks) {
      bool fresh =
          task.to.data == nullptr || out.Add(task.to, task.to.data, ElementBytes(task.to_dtype),
                                             task.batch, task.rows, task.heads);
      fresh &= task.lse.data == nullptr ||
               lse.Add(task.lse, task.lse.data, sizeof(float), task.batch, task.rows, task.heads);
      if (!fresh) return absl::InternalError("one call finalizes the same element twice");
    }
    return ForwardingDevice::Finalize(tasks);
  }
};

absl::Status RunWatched(const JobSpec& spec, uint64_t seed, int workers) {
  auto ring = MakeCommunicatorRing(RingKind::kInProcess, workers);
  if (!ring.ok()) return ring.status();
  return RunEngineOver(*ring, spec, RandomInputs(spec, seed),
                       {.kernel = "cpu",
                        .wrap =
                            [](std::unique_ptr<Device> device) {
                              return std::make_unique<WatchedDevice>(std::move(device));
                            }})
      .status();
}

TEST(DisjointWrites, TasksOfOneCallWriteDifferentElements) {
  std::mt19937_64 random(77);
  for (int trial = 0; trial < 300; ++trial) {
    JobSpec spec = RandomSpec(random);
    spec.dtype = trial % 2 == 0 ? DataType::kFloat32 : DataType::kBFloat16;
    const int workers = 1 + static_cast<int>(random() % 7);
    EXPECT_EQ(RunWatched(spec, random(), workers), absl::OkStatus())
        << workers << " workers " << FormatJobSpec(spec);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace hilbert_ring::testing

// The computation of a job: attention (here) or an encoder (encode_work.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/saturating.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/cluster/membership.h"
#include "server/rows/row_check.h"
#include "server/schedule/fit.h"
#include "server/shard/job_shape.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

struct JobArray {
  enum class Numbers { kOfDtype, kFloat64, kIntegers };
  std::vector<int64_t> shape;  // empty: the job does not have it in files
  Numbers numbers = Numbers::kOfDtype;
  DataType dtype = DataType::kFloat32;
};

class JobWork {  // Describe and TakePooled may be called by several threads at once
 public:
  using Output = std::function<absl::Status(const v1::OutputChunk& chunk, std::string_view payload,
                                            const std::shared_ptr<const void>& owner)>;

  virtual ~JobWork() = default;

  const JobShape& shape() const { return shape_; }
  const JobSpec& spec() const { return shape_.spec; }
  bool has_coordinates() const { return spec().ordering && spec().ordering->coordinate_axes > 0; }

  bool has_bias_coordinates() const { return BiasAxes(spec()) > 0; }

  virtual std::string model() const { return ""; }

  virtual Planner MakePlanner(std::function<bool()> cancelled) const = 0;

  virtual int64_t pooled_bytes() const { return 0; }  // of results that are put together here
  // 24 bytes a float: sums of the workers and of one state in float64, that state's means, all
  // means.
  int64_t result_bytes() const { return SaturatingMultiply(pooled_bytes(), 6); }
  int64_t client_bytes() const;  // payload from and to the client; saturates

  virtual JobArray ArrayOf(v1::Tensor tensor) const = 0;

  // Returns whether a worker can compute the job, memory aside; NobodyCan is the error if no worker
  // can.
  virtual bool CanRunOn(const Member& member) const { return true; }
  virtual absl::Status NobodyCan() const { return absl::OkStatus(); }

  // Null: no rows are checked (--check-rows).
  virtual std::shared_ptr<RowCheck> MakeCheck() const { return nullptr; }

  virtual absl::Status CheckChunk(const v1::Chunk& chunk, const wire::Payload& payload) const {
    return absl::OkStatus();
  }

  // A worker waits for memory, perhaps of a cancelled job that is ending, and loads a model.
  virtual std::chrono::seconds start_timeout() const { return std::chrono::seconds(60); }

  virtual void Describe(v1::RunOpen& open) const = 0;

  // Workers' parts of results that are put together here; BeginExecution drops earlier parts.
  virtual void BeginExecution() {}
  virtual void TakePooled(int rank, const v1::PooledSums& pooled) {}
  virtual absl::Status SendResults(const Output& output) { return absl::OkStatus(); }

  virtual void AddTo(v1::Report& report) const {}

 protected:
  explicit JobWork(JobShape shape) : shape_(std::move(shape)) {}

 private:
  const JobShape shape_;
};

// check_rows: computed again.
std::unique_ptr<JobWork> MakeAttentionWork(const JobSpec& spec, bool want_lse = false,
                                           int check_rows = 0);

}  // namespace hilbert_ring::server

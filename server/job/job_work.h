// What a job computes, as far as its course needs to know: attention here, an encoder in
// encode_work.h.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/plan/shards.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/cluster/membership.h"
#include "server/rows/row_check.h"
#include "server/schedule/planner.h"
#include "server/shard/job_shape.h"
#include "wire/payload.h"

namespace hilbert_ring::server {

// A tensor as an array in a file.
struct JobArray {
  enum class Numbers { kOfJob, kFloat32, kFloat64, kIntegers };
  std::vector<int64_t> shape;  // empty: the job does not have it, or not in files
  Numbers numbers = Numbers::kOfJob;
  DataType dtype = DataType::kFloat32;  // of kOfJob
};

// Used by the job's threads; Describe and TakePooled by several at once.
class JobWork {
 public:
  // An output for the client; the payload lies beside the chunk and lives as long as its owner.
  using Output = std::function<absl::Status(const v1::OutputChunk& chunk, std::string_view payload,
                                            const std::shared_ptr<const void>& owner)>;

  virtual ~JobWork() = default;

  const JobShape& shape() const { return shape_; }
  const JobSpec& spec() const { return shape_.spec; }

  // Of an encoder's job: the model's name; else empty.
  virtual std::string model() const { return ""; }

  // The plan of the whole job, with all that its workers take and do.
  virtual Planner MakePlanner(std::function<bool()> cancelled) const = 0;

  // Payload that the client sends and gets; saturates at the largest number.
  virtual int64_t client_bytes() const = 0;

  // Memory of the coordinator that its results take beside the shards, until they are sent.
  virtual int64_t result_bytes() const { return 0; }

  // Of a tensor that the client sends or gets.
  virtual JobArray ArrayOf(v1::Tensor tensor) const = 0;

  // Whether a worker can compute it, apart from its memory, and why none can where none does.
  virtual bool CanRunOn(const Member& member) const { return true; }
  virtual absl::Status NobodyCan() const { return absl::OkStatus(); }

  // Of as many rows of its outputs as it was made with (--check-rows); null: of none.
  virtual std::shared_ptr<RowCheck> MakeCheck() const { return nullptr; }

  // A chunk of the right shape: what its rows may not be.
  virtual absl::Status CheckChunk(const v1::Chunk& chunk, const wire::Payload& payload) const {
    return absl::OkStatus();
  }

  // Within which every worker is to be ready for the job: it takes the memory, perhaps that of a
  // job before this one which was cancelled and is ending, and what it computes with.
  virtual std::chrono::seconds start_timeout() const { return std::chrono::seconds(60); }

  // Says to a worker what it is to compute.
  virtual void Describe(v1::RunOpen& open) const = 0;

  // A worker's part of results that are put together here. The execution begins: those that came
  // before are forgotten.
  virtual void BeginExecution() {}
  virtual absl::Status TakePooled(int rank, const v1::PooledSums& pooled);

  // All workers have ended: results that are put together here.
  virtual absl::Status SendResults(const Output& output) { return absl::OkStatus(); }

  // What the report says beside the figures.
  virtual void AddTo(v1::Report& report) const {}

 protected:
  explicit JobWork(JobShape shape) : shape_(std::move(shape)) {}

 private:
  const JobShape shape_;
};

// spec: valid.
struct AttentionWorkOptions {
  bool want_lse = false;
  int check_rows = 0;  // that are computed again
};
std::unique_ptr<JobWork> MakeAttentionWork(const JobSpec& spec,
                                           const AttentionWorkOptions& options);

}  // namespace hilbert_ring::server

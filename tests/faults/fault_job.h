#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/attend.h"
#include "engine/spec/job_spec.h"
#include "tests/engine/run_engine.h"

namespace hilbert_ring::testing {

// Thread-safe.
class FaultAnswer {
 public:
  virtual ~FaultAnswer() = default;
  virtual std::string Mismatch(const EngineResult& result) const = 0;
};

struct FaultJob {
  JobSpec spec;
  std::map<v1::Tensor, std::string> tensors;
  std::vector<int64_t> coords;
  std::shared_ptr<const FaultAnswer> answer;
  double seconds = 0;  // undisturbed
};

absl::StatusOr<FaultJob> MakeSmallJob(std::mt19937_64& random);

// Makes a job of some thousand tokens, with segments that span the workers, and a fraction of a
// second of compute. Runs it once, undisturbed, at `address`.
absl::StatusOr<FaultJob> MakeMiddleJob(std::mt19937_64& random, const std::string& address);

// Many tokens and little compute: receiving and sending dominate.
absl::StatusOr<FaultJob> MakeWideJob(std::mt19937_64& random, const std::string& address);

enum class Verdict {
  kRight,
  kTyped,  // an error with a reason that blames no worker wrongly
  kBad,    // a wrong result, an error without a reason, or an error that faults must not cause
};

struct JobEnd {
  Verdict verdict = Verdict::kBad;
  absl::Status status;
  std::string reason;
  std::string what;
  double seconds = 0;
  int retries = 0;  // by the service
  int rows_checked = 0;
  int attempts = 1;      // of the client library
  std::string failures;  // of its attempts but the last
};

// float32 rows of zeros: the result is zeros too.
FaultJob MakeZeroJob(int64_t tokens, int64_t heads, int64_t dim, int64_t segment);

JobEnd RunJob(const std::string& address, const FaultJob& job,
              const client::AttendOptions& options);

// Tries a small random job within `limit`, and counts the tries. Returns the error, or nothing.
std::string RunNextJob(const std::string& address, std::mt19937_64& random, absl::Duration limit,
                       int& tries);

std::string Describe(const FaultJob& job);

}  // namespace hilbert_ring::testing

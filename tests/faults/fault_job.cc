#include "tests/faults/fault_job.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/service.h"
#include "engine/reference/sample_tokens.h"
#include "engine/spec/job_spec_json.h"
#include "engine/spec/numbers.h"
#include "grpcpp/client_context.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "tests/engine/expected_rows.h"
#include "tests/random/random_spec.h"
#include "tests/service/raw_call.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSampledRows = 16;

class ByDefinition final : public FaultAnswer {
 public:
  ByDefinition(const JobSpec& spec, ExpectedRows expected)
      : spec_(spec), expected_(std::move(expected)) {}
  std::string Mismatch(const EngineResult& result) const override {
    return testing::Mismatch(spec_, result, expected_);
  }

 private:
  const JobSpec spec_;
  const ExpectedRows expected_;
};

class OfRings final : public FaultAnswer {
 public:
  OfRings(const JobSpec& spec, EngineInputs inputs, EngineResult undisturbed,
          std::vector<int> other_rings)
      : spec_(spec), inputs_(std::move(inputs)), other_rings_(std::move(other_rings)) {
    results_.push_back(std::move(undisturbed));
  }

  std::string Mismatch(const EngineResult& result) const override {
    std::lock_guard lock(mutex_);
    const std::string out =
        Mismatch("OUT", result, &EngineResult::out, spec_.heads * spec_.value_dim);
    return out.empty() ? Mismatch("LSE", result, &EngineResult::lse, spec_.heads) : out;
  }

 private:
  // Requires mutex_. Rows of OUT and LSE leave one by one: rows of one token may be of two rings.
  std::string Mismatch(const char* tensor, const EngineResult& result,
                       std::vector<float> EngineResult::*rows, int64_t width) const {
    std::vector<int64_t> others(spec_.tokens);  // tokens whose rows match no result yet
    std::iota(others.begin(), others.end(), 0);
    for (size_t i = 0;; ++i) {
      if (i == results_.size()) {
        if (i > other_rings_.size()) break;
        auto other = RunEngine(spec_, inputs_, other_rings_[i - 1], RingKind::kInProcess);
        if (!other.ok()) return other.status().ToString();
        results_.push_back(*std::move(other));
      }
      std::erase_if(others, [&](int64_t token) {
        const auto row = (result.*rows).begin() + token * width;
        return std::equal(row, row + width, (results_[i].*rows).begin() + token * width);
      });
      if (others.empty()) return "";
    }
    return absl::StrCat(others.size(), " rows of ", tensor, " are of no ring, the first of token ",
                        others[0]);
  }

  const JobSpec spec_;
  const EngineInputs inputs_;
  const std::vector<int> other_rings_;
  mutable std::mutex mutex_;
  // Guarded by mutex_: the undisturbed result, then results of other_rings_ on demand.
  mutable std::vector<EngineResult> results_;
};

class OfZeros final : public FaultAnswer {
 public:
  std::string Mismatch(const EngineResult& result) const override {
    for (size_t i = 0; i < result.out.size(); ++i) {
      if (result.out[i] != 0) return absl::StrCat("out[", i, "] is ", result.out[i]);
    }
    for (size_t i = 0; i < result.lse.size(); ++i) {
      if (!std::isfinite(result.lse[i])) return absl::StrCat("lse[", i, "] is ", result.lse[i]);
    }
    return "";
  }
};

absl::StatusOr<std::shared_ptr<const FaultAnswer>> AnswerByDefinition(const JobSpec& spec,
                                                                      const EngineInputs& inputs) {
  auto expected = ExpectRows(spec, inputs);
  if (!expected.ok()) return expected.status();
  return std::make_shared<ByDefinition>(spec, *std::move(expected));
}

// The answer of jobs too long for the definition. Every row of OUT and LSE has the bits of the
// undisturbed result or of another ring's, which merges partial results in another order. Fails if
// rows drawn from the undisturbed result differ from the definition. other_rings: numbers of
// workers, the likeliest first.
absl::StatusOr<std::shared_ptr<const FaultAnswer>> AnswerOfRings(const JobSpec& spec,
                                                                 EngineInputs inputs,
                                                                 EngineResult undisturbed,
                                                                 std::vector<int> other_rings) {
  const auto drawn = ExpectRows(spec, inputs, SampleTokens(spec.tokens, kSampledRows, 1));
  if (!drawn.ok()) return drawn.status();
  if (std::string off = Mismatch(spec, undisturbed, *drawn); !off.empty()) {
    return absl::DataLossError(absl::StrCat("undisturbed, ", off));
  }
  return std::make_shared<OfRings>(spec, std::move(inputs), std::move(undisturbed),
                                   std::move(other_rings));
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t Uniform(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

DataType RandomType(std::mt19937_64& random) {
  constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};
  return kTypes[random() % 3];
}

std::span<const std::byte> Bytes(const std::string& bytes) {
  return std::as_bytes(std::span(bytes.data(), bytes.size()));
}

struct Output {
  std::vector<std::byte> out, lse;
};

absl::StatusOr<v1::Report> Call(const std::string& address, const FaultJob& job,
                                const client::AttendOptions& options, Output& output) {
  const JobSpec& spec = job.spec;
  output.out.assign(spec.tokens * spec.heads * spec.value_dim * ElementBytes(spec.dtype),
                    std::byte{0xff});
  output.lse.assign(spec.tokens * spec.heads * sizeof(float), std::byte{0xff});
  client::AttendInputs inputs{.spec = spec,
                              .q = Bytes(job.tensors.at(v1::TENSOR_Q)),
                              .k = Bytes(job.tensors.at(v1::TENSOR_K)),
                              .v = Bytes(job.tensors.at(v1::TENSOR_V))};
  if (const auto coords = job.tensors.find(v1::TENSOR_BIAS_COORDS); coords != job.tensors.end()) {
    inputs.bias_coordinates = {reinterpret_cast<const float*>(coords->second.data()),
                               coords->second.size() / sizeof(float)};
  }
  if (!job.coords.empty()) {
    inputs.coordinates = [&job](int64_t first_row, std::span<uint32_t> values) {
      const int64_t first = first_row * job.spec.ordering->coordinate_axes;
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<uint32_t>(job.coords[first + i]);
      }
    };
  }
  return client::Attend(client::Connect(address, options.access), inputs,
                        {.out = output.out, .lse = output.lse}, options);
}

EngineResult Decode(const FaultJob& job, const Output& output) {
  EngineResult result;
  const int64_t values = job.spec.tokens * job.spec.heads * job.spec.value_dim;
  result.out.resize(values);
  for (int64_t i = 0; i < values; ++i) {
    result.out[i] = LoadElement(job.spec.dtype, output.out.data(), i);
  }
  result.lse.resize(job.spec.tokens * job.spec.heads);
  std::memcpy(result.lse.data(), output.lse.data(), output.lse.size());
  return result;
}

FaultJob MakeJob(JobSpec spec, const EngineInputs& inputs) {
  FaultJob job{.spec = std::move(spec)};
  job.tensors = EncodeTensors(job.spec, inputs);
  job.tensors.erase(v1::TENSOR_COORDS);
  job.coords = inputs.coords;
  return job;
}

absl::StatusOr<FaultJob> RunUndisturbed(JobSpec spec, std::mt19937_64& random,
                                        const std::string& address) {
  EngineInputs inputs = RandomInputs(spec, random());
  FaultJob job = MakeJob(std::move(spec), inputs);
  Output output;
  const Clock::time_point start = Clock::now();
  const auto report = Call(address, job, {.deadline = absl::Seconds(120)}, output);
  if (!report.ok()) return report.status();
  job.seconds = SecondsSince(start);
  grpc::ClientContext context;
  v1::GetClusterResponse cluster;
  const grpc::Status described =
      v1::AttentionService::NewStub(client::Connect(address))->GetCluster(&context, {}, &cluster);
  if (!described.ok()) return wire::FromGrpc(described);
  std::vector<int> other_rings;
  for (int workers = cluster.workers_size(); workers > 0; --workers) {
    if (workers != report->workers_size()) other_rings.push_back(workers);
  }
  auto answer = AnswerOfRings(job.spec, std::move(inputs), Decode(job, output), other_rings);
  if (!answer.ok()) return answer.status();
  job.answer = *std::move(answer);
  return job;
}

void AddOrdering(JobSpec& spec, std::mt19937_64& random) {
  Ordering ordering;
  ordering.scope = random() % 2 == 0 ? OrderScope::kQkv : OrderScope::kKv;
  switch (random() % 5) {
    case 0:
      ordering.window = 1024;
      break;
    case 1:
      ordering.coordinate_axes = 2;
      break;
    case 2:
      break;
    default:
      return;
  }
  spec.ordering = ordering;
}

bool HasReason(const absl::Status& status) {
  bool has = false;
  status.ForEachPayload([&has](absl::string_view, const absl::Cord&) { has = true; });
  return has;
}

bool MayBeCaused(absl::StatusCode code) {
  return code == absl::StatusCode::kAborted || code == absl::StatusCode::kUnavailable ||
         code == absl::StatusCode::kResourceExhausted || code == absl::StatusCode::kCancelled;
}

}  // namespace

absl::StatusOr<FaultJob> MakeSmallJob(std::mt19937_64& random) {
  JobSpec spec = RandomSpec(random, {.max_tokens = Uniform(random, 50, 600)});
  if (random() % 3 == 0) MakeRectangular(spec, random);
  spec.dtype = RandomType(random);
  const EngineInputs inputs = RandomInputs(spec, random());
  FaultJob job = MakeJob(std::move(spec), inputs);
  auto answer = AnswerByDefinition(job.spec, inputs);
  if (!answer.ok()) return answer.status();
  job.answer = *std::move(answer);
  job.seconds = 0.005;  // on two cores
  return job;
}

absl::StatusOr<FaultJob> MakeMiddleJob(std::mt19937_64& random, const std::string& address) {
  JobSpec spec;
  spec.tokens = Uniform(random, 4'000, 12'000);
  spec.heads = 4;
  spec.kv_heads = random() % 2 == 0 ? 2 : 4;
  spec.head_dim = spec.value_dim = 32;
  spec.dtype = RandomType(random);
  spec.causal = random() % 3 == 0;
  spec.mixing = random() % 2 == 0 ? Mixing::kLse : Mixing::kHeadGroups;
  const std::vector<std::vector<Branch>> patterns = {
      {{.segment = spec.tokens}}, {{2048, 1}, {spec.tokens, 2}}, {{spec.tokens, 1}, {1024, 1}}};
  spec.branches = patterns[random() % patterns.size()];
  AddOrdering(spec, random);
  return RunUndisturbed(std::move(spec), random, address);
}

absl::StatusOr<FaultJob> MakeWideJob(std::mt19937_64& random, const std::string& address) {
  JobSpec spec;
  spec.tokens = Uniform(random, 30'000, 60'000);
  spec.heads = spec.kv_heads = 4;
  spec.head_dim = spec.value_dim = 32;
  spec.dtype = RandomType(random);
  spec.branches = {{256, 1}, {spec.tokens, 64}};
  return RunUndisturbed(std::move(spec), random, address);
}

FaultJob MakeZeroJob(int64_t tokens, int64_t heads, int64_t dim, int64_t segment) {
  FaultJob job;
  job.spec.tokens = tokens;
  job.spec.heads = job.spec.kv_heads = heads;
  job.spec.head_dim = job.spec.value_dim = dim;
  job.spec.branches = {{.segment = segment}};
  const std::string zeros(tokens * RowBytes(job.spec, TensorKind::kQ), '\0');
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
    job.tensors[tensor] = zeros;
  }
  job.answer = std::make_shared<OfZeros>();
  return job;
}

JobEnd RunJob(const std::string& address, const FaultJob& job,
              const client::AttendOptions& options) {
  JobEnd end;
  Output output;
  client::AttendOptions counted = options;
  counted.progress = [&](const client::AttendProgress& progress) {
    const int attempts = 1 + progress.attempt - options.attempt;
    if (attempts > end.attempts) {
      end.attempts = attempts;
      absl::StrAppend(&end.failures, "; attempt failed: ", progress.last_failure.ToString());
      if (!MayBeCaused(progress.last_failure.code())) end.what = "an attempt failed wrongly; ";
    }
    if (options.progress) options.progress(progress);
  };
  const Clock::time_point start = Clock::now();
  const auto report = Call(address, job, counted, output);
  end.seconds = SecondsSince(start);
  if (report.ok()) {
    end.retries = report->retries();
    end.rows_checked = report->rows_checked();
    end.what += job.answer->Mismatch(Decode(job, output));
    end.verdict = end.what.empty() ? Verdict::kRight : Verdict::kBad;
    return end;
  }
  end.status = report.status();
  end.reason = wire::ReasonOf(end.status);
  if (!MayBeCaused(end.status.code())) {
    end.what += absl::StrCat("a status that faults must not cause: ", end.status.ToString());
  } else if (!HasReason(end.status) && !absl::IsUnavailable(end.status)) {
    // gRPC's UNAVAILABLE for a broken connection has no details.
    end.what += absl::StrCat("a status without a reason: ", end.status.ToString());
  } else if (end.what.empty()) {
    end.verdict = Verdict::kTyped;
  }
  return end;
}

std::string RunNextJob(const std::string& address, std::mt19937_64& random, absl::Duration limit,
                       int& tries) {
  const absl::Time until = absl::Now() + limit;
  const auto job = MakeSmallJob(random);
  if (!job.ok()) return job.status().ToString();
  JobEnd end;
  for (tries = 1;; ++tries) {
    const absl::Duration left = until - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    end = RunJob(address, *job, {.deadline = left});
    if (end.verdict == Verdict::kRight) return "";
    if (end.status.ok()) break;
    absl::SleepFor(absl::Milliseconds(50));
  }
  return absl::StrCat("next job after ", tries, " tries: ", end.what, " ", end.status.ToString(),
                      ", ", Describe(*job));
}

std::string Describe(const FaultJob& job) { return FormatJobSpec(job.spec); }

}  // namespace hilbert_ring::testing

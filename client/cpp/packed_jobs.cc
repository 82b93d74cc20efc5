#include "client/cpp/packed_jobs.h"

#include <algorithm>
#include <map>
#include <string>

#include "wire/codec.h"
#include "wire/finite_rows.h"

namespace hilbert_ring::client {
namespace {

constexpr int64_t kMostSequences = 1024;

// Returns a key: jobs with equal keys may share a pack. A job with an empty key has its own.
std::string AlikeOf(const SmallJob& job) {
  const JobSpec& spec = job.inputs.spec;
  if (!job.job_id.empty() || (spec.ordering && spec.ordering->coordinate_axes > 0)) return "";
  v1::JobSpec common = wire::EncodeJobSpec(spec);
  common.clear_tokens();
  common.clear_sequence_lengths();
  return common.SerializeAsString() + (job.outputs.lse.empty() ? "" : "lse");
}

template <typename BytesOfJob>
std::vector<std::byte> Joined(std::span<const SmallJob> jobs, const Pack& pack,
                              const BytesOfJob& of) {
  size_t bytes = 0;
  for (const size_t job : pack) bytes += of(jobs[job]).size();
  std::vector<std::byte> joined;
  joined.reserve(bytes);
  for (const size_t job : pack) {
    joined.insert(joined.end(), of(jobs[job]).begin(), of(jobs[job]).end());
  }
  return joined;
}

void CountRowsNotFinite(const SmallJob& job, v1::Report& report) {
  const JobSpec& spec = job.inputs.spec;
  const int64_t row_bytes = wire::TensorRowBytes(spec, v1::TENSOR_OUT);
  int64_t found = 0;
  report.set_first_row_not_finite(0);
  for (int64_t row = spec.tokens - 1; row >= 0; --row) {
    if (wire::IsFinite(spec.dtype, job.outputs.out.data() + row * row_bytes, row_bytes)) continue;
    report.set_first_row_not_finite(row);
    ++found;
  }
  report.set_rows_not_finite(found);
}

}  // namespace

int64_t BytesOf(const SmallJob& job) {
  const AttendInputs& inputs = job.inputs;
  return std::max(std::ssize(inputs.q) + std::ssize(inputs.k) + std::ssize(inputs.v),
                  std::ssize(job.outputs.out) + std::ssize(job.outputs.lse));
}

std::deque<Pack> PacksOf(std::span<const SmallJob> jobs, const Pack& chosen, int64_t limit_bytes) {
  struct Filling {
    Pack* pack = nullptr;
    int64_t bytes = 0, sequences = 0;
  };
  std::deque<Pack> packs;  // with stable addresses
  std::map<std::string, Filling> filling;
  for (const size_t number : chosen) {
    const SmallJob& job = jobs[number];
    const std::string alike = AlikeOf(job);
    Filling& last = filling[alike];
    const int64_t bytes = BytesOf(job);
    const int64_t sequences = std::max<int64_t>(1, std::ssize(job.inputs.spec.sequence_lengths));
    if (alike.empty() || last.pack == nullptr || last.bytes + bytes > limit_bytes ||
        last.sequences + sequences > kMostSequences) {
      last = {.pack = &packs.emplace_back()};
    }
    last.pack->push_back(number);
    last.bytes += bytes;
    last.sequences += sequences;
  }
  return packs;
}

PackedJobs::PackedJobs(std::span<const SmallJob> jobs, const Pack& pack)
    : jobs_(jobs),
      pack_(pack),
      q_(Joined(jobs, pack, [](const SmallJob& job) { return job.inputs.q; })),
      k_(Joined(jobs, pack, [](const SmallJob& job) { return job.inputs.k; })),
      v_(Joined(jobs, pack, [](const SmallJob& job) { return job.inputs.v; })),
      inputs_{.spec = jobs[pack.front()].inputs.spec, .q = q_, .k = k_, .v = v_} {
  size_t out_bytes = 0, lse_bytes = 0;
  inputs_.spec.tokens = 0;
  inputs_.spec.sequence_lengths.clear();
  for (const size_t number : pack) {
    const SmallJob& job = jobs[number];
    const JobSpec& own = job.inputs.spec;
    out_bytes += job.outputs.out.size();
    lse_bytes += job.outputs.lse.size();
    inputs_.spec.tokens += own.tokens;
    for (const Sequence& sequence : Sequences(own)) {
      inputs_.spec.sequence_lengths.push_back(sequence.length);
    }
  }
  out_.resize(out_bytes);
  lse_.resize(lse_bytes);
}

std::vector<v1::Report> PackedJobs::Take(const v1::Report& report) const {
  std::vector<v1::Report> reports;
  std::span<const std::byte> out = out_, lse = lse_;
  const auto take = [](std::span<const std::byte>& from, std::span<std::byte> to) {
    std::ranges::copy(from.first(to.size()), to.begin());
    from = from.subspan(to.size());
  };
  for (const size_t number : pack_) {
    const SmallJob& job = jobs_[number];
    take(out, job.outputs.out);
    take(lse, job.outputs.lse);
    v1::Report& own = reports.emplace_back(report);
    own.set_tokens(job.inputs.spec.tokens);
    if (report.rows_not_finite() > 0) CountRowsNotFinite(job, own);
  }
  return reports;
}

}  // namespace hilbert_ring::client

#include "server/many/packed_jobs.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

// Of jobs that are computed as one. Rows of a message are fewer, but for those that it lacks.
constexpr int64_t kMostTokens = int64_t{1} << 22;
constexpr int64_t kMostSequences = int64_t{1} << 12;
constexpr double kMostBytes = int64_t{1} << 62;  // that are counted

bool AddUp(const v1::JobSpec& spec) {
  int64_t rest = spec.tokens();
  for (const int64_t length : spec.sequence_lengths()) {
    if (length < 1 || length > rest) return false;
    rest -= length;
  }
  return rest == 0;
}

// A field of Open that is set and that a job of a call of many has not: its rows come with it, and
// its results leave in one message. Null: there is none.
const char* ForeignField(const v1::Open& open) {
  if (open.files_size() > 0) return "files";
  if (open.want_trace()) return "want_trace";
  return open.epoch_tokens() != 0 ? "epoch_tokens" : nullptr;
}

// What jobs have in common that are computed as one; empty: the job stays alone.
std::string AlikeOf(const v1::SmallJob& job) {
  const v1::Open& open = job.open();
  const v1::JobSpec& spec = open.spec();
  const bool right = open.has_spec() && spec.tokens() >= 1 && spec.tokens() <= kMostTokens &&
                     (spec.sequence_lengths().empty() || AddUp(spec));
  if (!right || !open.job_id().empty() || open.attempt() != 0 || ForeignField(open) != nullptr ||
      spec.ordering().coordinate_axes() != 0) {
    return "";
  }
  v1::Open common = open;
  common.set_can_resend(false);
  common.mutable_spec()->clear_tokens();
  common.mutable_spec()->clear_sequence_lengths();
  return common.SerializeAsString();
}

int64_t SequencesOf(const v1::SmallJob& job) {
  return std::max(1, job.open().spec().sequence_lengths_size());
}

int64_t OutputBytesOf(const v1::SmallJob& job) {
  const v1::JobSpec& spec = job.open().spec();
  const double element = spec.dtype() == v1::DATA_TYPE_FLOAT32 ? 4 : 2;
  const double lse = job.open().want_lse() ? sizeof(float) : 0;
  const double bytes = static_cast<double>(spec.tokens()) * static_cast<double>(spec.heads()) *
                       (static_cast<double>(spec.value_dim()) * element + lse);
  return static_cast<int64_t>(std::clamp(bytes, 0.0, kMostBytes));
}

}  // namespace

PackedJobs::PackedJobs(const v1::SmallJob& job, int64_t number)
    : jobs_{{&job, number, 0}},
      alike_(AlikeOf(job)),
      sequences_(SequencesOf(job)),
      output_bytes_(OutputBytesOf(job)) {}

bool PackedJobs::Add(const v1::SmallJob& job, int64_t number) {
  if (alike_.empty() || AlikeOf(job) != alike_) return false;
  const int64_t first = all_tokens();
  const int64_t sequences = sequences_ + SequencesOf(job);
  if (first + job.open().spec().tokens() > kMostTokens || sequences > kMostSequences ||
      output_bytes_ > wire::kMaxPayloadBytes - OutputBytesOf(job)) {
    return false;
  }
  jobs_.push_back({&job, number, first});
  sequences_ = sequences;
  output_bytes_ += OutputBytesOf(job);
  return true;
}

v1::Open PackedJobs::open() const {
  v1::Open open = job(0).open();
  open.set_can_resend(false);
  if (size() == 1) return open;
  v1::JobSpec& spec = *open.mutable_spec();
  spec.set_tokens(all_tokens());
  spec.clear_sequence_lengths();
  for (int64_t i = 0; i < size(); ++i) {
    const v1::JobSpec& own = job(i).open().spec();
    spec.mutable_sequence_lengths()->MergeFrom(own.sequence_lengths());
    if (own.sequence_lengths().empty()) spec.add_sequence_lengths(own.tokens());
  }
  return open;
}

absl::Status PackedJobs::Check() const {
  if (const char* const field = ForeignField(job(0).open()); field != nullptr) {  // it is alone
    return wire::ErrorOf(wire::reason::kInvalidOpen,
                         absl::StrCat("open.", field, " is set, which a job of a call of many ",
                                      "has not: call Attend"));
  }
  for (int64_t i = 0; size() > 1 && i < size(); ++i) {
    for (const v1::Chunk& chunk : job(i).rows()) {
      if (chunk.first_row() >= 0 && chunk.rows() >= 0 && chunk.rows() <= tokens(i) &&
          chunk.first_row() <= tokens(i) - chunk.rows()) {
        continue;
      }
      return wire::ErrorOf(
          wire::reason::kChunkMisshapen,
          absl::StrCat(wire::TensorName(chunk.tensor()), ": ", chunk.rows(), " rows from ",
                       chunk.first_row(), " on, the job has ", tokens(i)));
    }
  }
  return absl::OkStatus();
}

std::vector<PackedChunk> PackedJobs::chunks() const {
  std::vector<PackedChunk> chunks;
  for (int64_t i = 0; i < size(); ++i) {
    for (const v1::Chunk& chunk : job(i).rows()) {
      // One that is alone is checked as it is.
      const int64_t first = size() == 1 ? chunk.first_row() : first_token(i) + chunk.first_row();
      chunks.push_back({.tensor = chunk.tensor(), .first_row = first, .chunk = &chunk});
    }
  }
  return chunks;
}

std::vector<PackedJobs> Pack(const v1::AttendManyRequest& request, int64_t first_number) {
  std::vector<PackedJobs> packed;
  std::map<std::string, size_t> last;  // of those alike, the ones that may take more
  for (int i = 0; i < request.jobs_size(); ++i) {
    const v1::SmallJob& job = request.jobs(i);
    const std::string alike = AlikeOf(job);
    const auto found = alike.empty() ? last.end() : last.find(alike);
    if (found != last.end() && packed[found->second].Add(job, first_number + i)) continue;
    if (!alike.empty()) last[alike] = packed.size();
    packed.emplace_back(job, first_number + i);
  }
  return packed;
}

}  // namespace hilbert_ring::server

// Small jobs of one message that are computed as one: as packed sequences, of which none sees
// another. Pure.
//
//   for (const PackedJobs& jobs : Pack(request, first_number)) ...
//   jobs.open();                       // of the job that they are computed in
//   jobs.chunks();                     // its rows
//   jobs.Take(chunk, payload, ...);    // its outputs
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/many.pb.h"

namespace hilbert_ring::server {

// Rows of a tensor where they lie in the client's message.
struct PackedChunk {
  v1::Tensor tensor;
  int64_t first_row;  // of the job that they are computed in
  const v1::Chunk* chunk;
};

class PackedJobs {
 public:
  // A job alone, whatever it is. All that is referred to outlives the object.
  PackedJobs(const v1::SmallJob& job, int64_t number);

  int64_t size() const { return std::ssize(jobs_); }
  const v1::SmallJob& job(int64_t i) const { return *jobs_[i].job; }
  int64_t number(int64_t i) const { return jobs_[i].number; }  // in the call
  int64_t first_token(int64_t i) const { return jobs_[i].first; }
  int64_t tokens(int64_t i) const { return job(i).open().spec().tokens(); }
  int64_t all_tokens() const { return jobs_.back().first + tokens(size() - 1); }

  // Of OUT and LSE together; saturates.
  int64_t output_bytes() const { return output_bytes_; }

  // One more; false where it cannot be computed together with those that are here.
  bool Add(const v1::SmallJob& job, int64_t number);

  v1::Open open() const;

  // INVALID_ARGUMENT (INVALID_OPEN): a field of Open that is none of small jobs;
  // (CHUNK_MISSHAPEN): rows that are not the job's own, where it is not alone.
  absl::Status Check() const;
  std::vector<PackedChunk> chunks() const;

 private:
  struct Member {
    const v1::SmallJob* job;
    int64_t number;
    int64_t first;  // token
  };
  std::vector<Member> jobs_;
  std::string alike_;  // what all have in common; empty: it stays alone
  int64_t sequences_ = 0;
  int64_t output_bytes_ = 0;
};

// All jobs of a message, by their numbers in the call, which begin at `first_number`. Those that
// are computed together keep their order.
std::vector<PackedJobs> Pack(const v1::AttendManyRequest& request, int64_t first_number);

}  // namespace hilbert_ring::server

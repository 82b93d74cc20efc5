// Small jobs that are computed as one: as packed sequences, none of which sees another.
//
//   for (const Pack& pack : PacksOf(jobs, chosen, limit_bytes)) {
//     PackedJobs packed(jobs, pack);
//     auto report = Attend(connector, packed.inputs(), packed.outputs(), options);
//     if (report.ok()) reports = packed.Take(*report);
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "client/cpp/attend.h"
#include "client/cpp/attend_inputs.h"
#include "client/cpp/attend_many.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// Of rows or results, whichever are more; coordinates do not count.
int64_t BytesOf(const SmallJob& job);

// Numbers of jobs, in order.
using Pack = std::vector<size_t>;

// Jobs that are alike but for their tokens share packs of `limit_bytes`; a longer job, a job with a
// name and a job with coordinates have their own. The jobs are valid.
std::deque<Pack> PacksOf(std::span<const SmallJob> jobs, const Pack& chosen, int64_t limit_bytes);

// Copies of the rows of a pack, and room for its results.
class PackedJobs {
 public:
  // Both outlive the object.
  PackedJobs(std::span<const SmallJob> jobs, const Pack& pack);

  const AttendInputs& inputs() const { return inputs_; }
  AttendOutputs outputs() { return {.out = out_, .lse = lse_}; }

  // Gives each job its results. The jobs' reports: this one but for tokens and rows that are not
  // finite.
  std::vector<v1::Report> Take(const v1::Report& report) const;

 private:
  const std::span<const SmallJob> jobs_;
  const Pack& pack_;
  std::vector<std::byte> q_, k_, v_, out_, lse_;
  AttendInputs inputs_;
};

}  // namespace hilbert_ring::client

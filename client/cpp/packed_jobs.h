// Packs small jobs into one job of packed sequences, which do not see each other.
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
#include "client/cpp/attend_many.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// Returns the larger of the rows' and the results' bytes, without coordinates.
int64_t BytesOf(const SmallJob& job);

// Indices of jobs, in order.
using Pack = std::vector<size_t>;

// Jobs that differ only in their tokens share packs of `limit_bytes`. A longer job, a job with an
// id and a job with coordinates have packs of their own. The jobs must be valid.
std::deque<Pack> PacksOf(std::span<const SmallJob> jobs, const Pack& chosen, int64_t limit_bytes);

class PackedJobs {
 public:
  // Both outlive the object.
  PackedJobs(std::span<const SmallJob> jobs, const Pack& pack);

  const AttendInputs& inputs() const { return inputs_; }
  AttendOutputs outputs() { return {.out = out_, .lse = lse_}; }

  // Copies each job's results to its outputs. Returns a report for each job: `report` with the
  // job's own tokens and count of rows that are not finite.
  std::vector<v1::Report> Take(const v1::Report& report) const;

 private:
  const std::span<const SmallJob> jobs_;
  const Pack& pack_;
  std::vector<std::byte> q_, k_, v_, out_, lse_;
  AttendInputs inputs_;
};

}  // namespace hilbert_ring::client

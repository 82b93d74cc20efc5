// What the service must say to each chunk of a client, found the simple way: one flag a row.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::fuzz {

class AttendModel {
 public:
  explicit AttendModel(const JobSpec& spec);

  // The reason for which the chunk is refused; empty when it is accepted, and its rows are there.
  std::string Accept(const v1::Chunk& chunk, const std::string& payload);

  // Whether every row of every tensor has come.
  bool complete() const;
  bool Complete(v1::Tensor tensor) const;

  // The first row that is missing; tokens when all are there.
  int64_t FirstMissing(v1::Tensor tensor) const;

  const std::map<v1::Tensor, std::vector<bool>>& rows() const { return rows_; }

 private:
  const JobSpec spec_;
  std::map<v1::Tensor, std::vector<bool>> rows_;  // that have come, of the tensors that are taken
};

}  // namespace hilbert_ring::fuzz

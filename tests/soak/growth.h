// Resident memory, descriptors and threads of processes over a long run, sampled while they are
// idle, and whether they grow.
//
//   Growth growth(cluster);
//   growth.Sample(seconds);                   // again and again
//   growth.Print();
//   growth.Failures(first_part)               // empty: flat
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/faults/fault_cluster.h"
#include "tests/support/process_account.h"

namespace hilbert_ring::testing {

class Growth {
 public:
  explicit Growth(Cluster& cluster);

  // `seconds` of the run have passed. Processes that are no longer there are a failure.
  void Sample(double seconds);

  // A table: a line for each sample, figures of all processes.
  void Print() const;

  // What grew from the samples that follow `first_part` seconds to the last ones, by more than 2 %
  // or 8 MiB, whichever is more; or by more descriptors or threads than come and go. Empty:
  // nothing.
  std::string Failures(double first_part) const;

 private:
  struct Point {
    double seconds = 0;
    ProcessAccount account;
  };
  struct Process {
    std::string name;
    pid_t pid = 0;
    std::vector<Point> points;
  };
  struct Change {
    double begin = 0, end = 0;  // resident bytes
    int descriptors = 0, threads = 0;
  };
  static Change ChangeOf(const Process& process, double first_part);

  std::vector<Process> processes_;
  std::string gone_;
};

}  // namespace hilbert_ring::testing

// FakeNccl imitates NCCL without GPUs: ends in one process exchange host memory. Like NCCL it
// matches transfers by order alone, and does not check sizes. Tests can make it hang and fail.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/comm/nccl_end.h"

namespace hilbert_ring::testing {

// Shared by the ranks of one ring; outlives its ends.
class FakeNccl {
 public:
  explicit FakeNccl(int size) : ranks_(size), pairs_(size * size) {}

  std::unique_ptr<NcclEnd> MakeEnd(int rank);

  // Set these before the calls that they affect.
  bool peers_come = true;           // false: Ready stays false after Init
  bool peers_finalize = true;       // false: Ready stays false after Finalize
  std::atomic<bool> stuck = false;  // the stream of an aborted end stays busy: a GPU that hangs

  // The next Ready of the rank's end returns this.
  void FailRank(int rank, absl::Status status);

  // Names of the calls of the rank's end, without Ready and Idle.
  std::vector<std::string> Calls(int rank) const;
  std::vector<std::vector<NcclTransfer>> Groups(int rank) const;

  // Returns whether two calls of one end have overlapped.
  bool overlapped() const { return overlapped_; }
  int ends_destroyed() const { return ends_destroyed_; }

 private:
  friend class FakeEnd;

  struct Transfer {
    void* data = nullptr;
    int64_t bytes = 0;
    std::shared_ptr<int> left;  // of its group
  };

  struct Pair {
    std::deque<Transfer> sends, receives;  // not matched yet
  };

  struct Rank {
    bool joined = false, gone = false;
    absl::Status failure;
    std::vector<std::string> calls;
    std::vector<std::vector<NcclTransfer>> groups;
  };

  void Move(Pair& pair);  // requires mutex_

  mutable std::mutex mutex_;
  std::vector<Rank> ranks_;  // guarded by mutex_
  std::vector<Pair> pairs_;  // [from * size + to]; guarded by mutex_
  std::atomic<bool> overlapped_ = false;
  std::atomic<int> ends_destroyed_ = 0;
};

}  // namespace hilbert_ring::testing

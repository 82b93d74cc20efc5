// What the workers of a job say of each other when their ring breaks, and whom the job leaves out
// for it. Of two that cannot exchange blocks either will do; one that says it of several peers, or
// of which several say it, is rather the one. Pure.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "server/cluster/membership.h"

namespace hilbert_ring::server {

struct Complaint {
  std::shared_ptr<const Member> by;
  std::shared_ptr<const Member> of;  // null: it does not say of whom
  bool corrupt = false;              // what came from it
};

// What ended an execution; empty: something else did.
struct Complaints {
  std::vector<Complaint> heard;  // in their order
  bool slow = false;             // each more would cost so long as a lost worker is waited for
};

class PeerComplaints {
 public:
  // Of the next execution of a job that failed: the one that the job does without from now on. Null
  // where it may have been a moment's, or nobody can be told.
  std::shared_ptr<const Member> Culprit(const Complaints& complaints);

 private:
  using Worker = std::shared_ptr<const Member>;

  Worker MostInvolved(const std::vector<Complaint>& heard) const;

  bool heard_before_ = false;              // in the last execution
  Worker alone_before_;                    // who spoke alone there, of nobody
  std::map<Worker, std::set<Worker>> of_;  // of whom a worker has spoken
  std::map<Worker, std::set<Worker>> by_;  // who has spoken of it
};

}  // namespace hilbert_ring::server

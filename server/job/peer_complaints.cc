#include "server/job/peer_complaints.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace hilbert_ring::server {
namespace {

bool IsGone(const std::shared_ptr<const Member>& worker) {
  return worker != nullptr && worker->departed.stop_requested();
}

// Those that count: of who is there, and where blocks were corrupt, of those alone: the others come
// of the ring that then ended.
std::vector<Complaint> Relevant(std::vector<Complaint> heard) {
  std::erase_if(heard, [](const Complaint& one) { return IsGone(one.by) || IsGone(one.of); });
  if (std::ranges::any_of(heard, &Complaint::corrupt))
    std::erase_if(heard, [](const Complaint& one) { return !one.corrupt; });
  return heard;
}

}  // namespace

std::shared_ptr<const Member> PeerComplaints::Culprit(const Complaints& complaints) {
  const std::vector<Complaint> heard = Relevant(complaints.heard);
  const bool again = std::exchange(heard_before_, !heard.empty());
  const bool names =
      std::ranges::any_of(heard, [](const Complaint& one) { return one.of != nullptr; });
  const Worker alone = heard.size() == 1 && !names ? heard.front().by : nullptr;
  const Worker alone_before = std::exchange(alone_before_, alone);
  for (const Complaint& one : heard) {
    if (one.of == nullptr) continue;
    of_[one.by].insert(one.of);
    by_[one.of].insert(one.by);
  }
  if (heard.empty() || (!again && !complaints.slow)) return nullptr;
  if (names) return MostInvolved(heard);
  return alone == alone_before || complaints.slow ? alone : nullptr;
}

// By the number of others that it has spoken of or that have spoken of it, then of those alone that
// have spoken of it. Among equals the one of whom was spoken first.
std::shared_ptr<const Member> PeerComplaints::MostInvolved(
    const std::vector<Complaint>& heard) const {
  const auto in = [](const std::map<Worker, std::set<Worker>>& map, const Worker& worker) {
    const auto found = map.find(worker);
    return found == map.end() ? std::set<Worker>() : found->second;
  };
  const auto involvement = [&](const Worker& worker) {
    const std::set<Worker> accusers = in(by_, worker);
    std::set<Worker> others = in(of_, worker);
    others.insert(accusers.begin(), accusers.end());
    return std::pair(others.size(), accusers.size());
  };
  Worker most;
  for (const Complaint& one : heard) {
    if (one.of == nullptr) continue;
    for (const Worker& worker : {one.of, one.by}) {
      if (most == nullptr || involvement(worker) > involvement(most)) most = worker;
    }
  }
  return most;
}

}  // namespace hilbert_ring::server

// Gloo's rendezvous store on top of one all-gather: what a rank sets travels in its blob, and the first
// read gathers the blobs of all.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "gloo/rendezvous/store.h"

namespace hilbert_ring {

// Throws std::runtime_error where the gather fails, since that is how Gloo's stores say so; the status is
// kept in status().
class GatherStore : public gloo::rendezvous::Store {
 public:
  // The gather must outlive the store.
  GatherStore(const AllGather& all_gather, Deadline deadline)
      : all_gather_(all_gather), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

  const absl::Status& status() const { return status_; }

 private:
  void Gather();

  const AllGather& all_gather_;
  const Deadline deadline_;
  bool gathered_ = false;
  std::map<std::string, std::string> values_;
  absl::Status status_;
};

}  // namespace hilbert_ring

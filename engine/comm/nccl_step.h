// A step's form in NCCL: one group of transfers, and a note to each peer about them.
//
// NCCL matches sends with receives by order alone. The receiver compares the note with its list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/comm/communicator.h"
#include "engine/comm/nccl_end.h"

namespace hilbert_ring {

// Describes all transfers of a step from one rank to another.
struct StepNote {
  int64_t step = 0;
  int64_t transfers = 0;
  int64_t bytes = 0;
  uint64_t sizes = 0;  // a hash of all sizes in order

  void Add(int64_t transfer_bytes);
  bool operator==(const StepNote&) const = default;
};

// Notes of one rank in staging memory: sent notes by peer, then received notes by peer.
class StepNotes {
 public:
  StepNotes(NcclStaging staging, int size) : staging_(staging), size_(size) {}

  static int64_t BytesFor(int size) { return 2 * size * int64_t{sizeof(StepNote)}; }

  // Returns the step's group, empty without bytes. Writes sent notes and keeps the expected ones.
  std::vector<NcclTransfer> MakeGroup(const CommStep& step);

  int64_t sent_offset() const { return 0; }
  int64_t received_offset() const { return size_ * int64_t{sizeof(StepNote)}; }
  int64_t half_bytes() const { return size_ * int64_t{sizeof(StepNote)}; }

  // Compares received notes with expected ones. DATA_LOSS names peer, step and both notes.
  absl::Status Verify() const;

 private:
  NcclStaging staging_;
  int size_;
  std::vector<StepNote> expected_;  // [ranks]; of the last group
};

// "rank 1", "ranks 1, 2": all peers of a step that moves bytes.
std::string PeersOf(const CommStep& step);

}  // namespace hilbert_ring

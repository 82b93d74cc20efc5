#include "engine/comm/nccl_step.h"

#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/peer_error.h"

namespace hilbert_ring {
namespace {

std::string Describe(const StepNote& note) {
  return absl::StrCat("step ", note.step, ", ", note.transfers, " transfers, ", note.bytes,
                      " bytes, sizes ", absl::Hex(note.sizes));
}

template <typename Transfers>
std::vector<StepNote> NotesOf(const Transfers& transfers, int64_t step, int size) {
  std::vector<StepNote> notes(size, StepNote{.step = step});
  for (const auto& transfer : transfers) notes[transfer.peer].Add(transfer.bytes);
  return notes;
}

}  // namespace

void StepNote::Add(int64_t transfer_bytes) {
  constexpr uint64_t kPrime = 0x100000001b3;  // Fowler, Noll and Vo
  ++transfers;
  bytes += transfer_bytes;
  sizes = (sizes ^ static_cast<uint64_t>(transfer_bytes)) * kPrime + 1;
}

std::vector<NcclTransfer> StepNotes::MakeGroup(const CommStep& step) {
  using Direction = NcclTransfer::Direction;
  constexpr int64_t kNoteBytes = sizeof(StepNote);
  const std::vector<StepNote> sent = NotesOf(step.sends, step.number, size_);
  expected_ = NotesOf(step.receives, step.number, size_);
  std::memcpy(staging_.host + sent_offset(), sent.data(), half_bytes());
  std::memset(staging_.host + received_offset(), 0, half_bytes());

  std::vector<NcclTransfer> group;
  std::vector<bool> noted(size_);
  const auto add = [&](Direction direction, int peer, void* data, int64_t bytes, int64_t notes) {
    if (bytes == 0) return;
    if (!noted[peer]) {
      std::byte* note = staging_.device + notes + peer * kNoteBytes;
      group.push_back({direction, peer, note, kNoteBytes});
      noted[peer] = true;
    }
    group.push_back({direction, peer, data, bytes});
  };
  for (const Receive& receive : step.receives) {
    add(Direction::kReceive, receive.peer, receive.data, receive.bytes, received_offset());
  }
  noted.assign(size_, false);
  for (const Send& send : step.sends) {
    add(Direction::kSend, send.peer, const_cast<void*>(send.data), send.bytes, sent_offset());
  }
  return group;
}

absl::Status StepNotes::Verify() const {
  for (int peer = 0; peer < size_; ++peer) {
    const StepNote& expected = expected_[peer];
    if (expected.bytes == 0) continue;
    StepNote received;
    std::memcpy(&received, staging_.host + received_offset() + peer * sizeof(StepNote),
                sizeof(StepNote));
    if (received == expected) continue;
    return WithPeer(absl::DataLossError(absl::StrCat("rank ", peer, " sent ", Describe(received),
                                                     ", must be ", Describe(expected))),
                    peer);
  }
  return absl::OkStatus();
}

std::string PeersOf(const CommStep& step) {
  std::set<int> peers;
  for (const Send& send : step.sends) {
    if (send.bytes > 0) peers.insert(send.peer);
  }
  for (const Receive& receive : step.receives) {
    if (receive.bytes > 0) peers.insert(receive.peer);
  }
  return absl::StrCat(peers.size() == 1 ? "rank " : "ranks ", absl::StrJoin(peers, ", "));
}

}  // namespace hilbert_ring

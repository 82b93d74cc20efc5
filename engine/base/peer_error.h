// Which other rank of a ring an error is about, beside its message.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hilbert_ring {

inline constexpr absl::string_view kPeerPayload = "hilbert-ring/peer";

// The same status, which must not be OK, with the peer that it is about. The innermost one wins.
inline absl::Status WithPeer(absl::Status status, int rank) {
  if (!status.GetPayload(kPeerPayload)) {
    status.SetPayload(kPeerPayload, absl::Cord(absl::StrCat(rank)));
  }
  return status;
}

// Nothing for a status that names none.
inline std::optional<int> PeerOf(const absl::Status& status) {
  const auto said = status.GetPayload(kPeerPayload);
  int rank = 0;
  if (!said || !absl::SimpleAtoi(std::string(*said), &rank) || rank < 0) return std::nullopt;
  return rank;
}

}  // namespace hilbert_ring

// The rank of a ring that caused an error, beside the error's message.
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

// Returns the status, which must not be OK, with the peer's rank. A rank set before stays.
inline absl::Status WithPeer(absl::Status status, int rank) {
  if (!status.GetPayload(kPeerPayload)) {
    status.SetPayload(kPeerPayload, absl::Cord(absl::StrCat(rank)));
  }
  return status;
}

// Returns nullopt if the status has no rank.
inline std::optional<int> PeerOf(const absl::Status& status) {
  const auto said = status.GetPayload(kPeerPayload);
  int rank = 0;
  if (!said || !absl::SimpleAtoi(std::string(*said), &rank) || rank < 0) return std::nullopt;
  return rank;
}

}  // namespace hilbert_ring

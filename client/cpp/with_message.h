// Replaces the message of an error.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace hilbert_ring::client {

// Returns code and payloads (with the reason) of a status that is not OK, with another message.
inline absl::Status WithMessage(const absl::Status& status, std::string_view message) {
  absl::Status changed(status.code(), absl::string_view(message.data(), message.size()));
  status.ForEachPayload([&changed](absl::string_view url, const absl::Cord& payload) {
    changed.SetPayload(url, payload);
  });
  return changed;
}

}  // namespace hilbert_ring::client

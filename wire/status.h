// Converts between absl::Status and grpc::Status. A status that leaves the service carries a
// google.rpc.ErrorInfo with a reason (wire/reason.h).
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"
#include "wire/reason.h"

namespace hilbert_ring::wire {

inline constexpr std::string_view kErrorDomain = "hilbert-ring";

absl::Status ErrorOf(const Reason& reason, std::string_view message);

// Attaches a reason to a status that is not OK and keeps its code. The innermost reason wins.
absl::Status WithReason(absl::Status status, const Reason& reason);

absl::Status WithReason(absl::Status status, std::string_view name);

// Returns the reason's name; without a reason the code's name ("INVALID_ARGUMENT").
std::string ReasonOf(const absl::Status& status);
bool HasReason(const absl::Status& status, const Reason& reason);

// Returns true for RESOURCE_EXHAUSTED, unless its reason excludes retries: the resource becomes
// free by itself.
bool MayHelpLater(const absl::Status& status);

// Converts code, message, and in an ErrorInfo the reason, field, limit and peer
// (engine/base/peer_error.h). Messages are cut to 1,024 bytes. Control characters of received
// messages are escaped, because logs and callers' terminals show them.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace hilbert_ring::wire

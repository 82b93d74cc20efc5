// One table between absl::Status and grpc::Status. A status that leaves the service carries a
// google.rpc.ErrorInfo with a reason (wire/reason.h), and a retry retry_after where one is known.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"
#include "wire/reason.h"

namespace hilbert_ring::wire {

inline constexpr std::string_view kErrorDomain = "hilbert-ring";

// An error of the reason's code.
absl::Status ErrorOf(const Reason& reason, std::string_view message);

// Attaches a reason to a status that is not OK and keeps its code. The innermost reason wins.
absl::Status WithReason(absl::Status status, const Reason& reason);

// As a peer said it.
absl::Status WithReason(absl::Status status, std::string_view name);

// The reason's name; a default by code when none is attached ("INVALID_ARGUMENT").
std::string ReasonOf(const absl::Status& status);
bool HasReason(const absl::Status& status, const Reason& reason);

// What is used up comes free without anybody's doing: RESOURCE_EXHAUSTED, but for reasons that say
// that nobody is to try again.
bool MayHelpLater(const absl::Status& status);

// Code, message, and reason, field, limit and peer (engine/base/peer_error.h) in an ErrorInfo, in
// either direction. A message of more than 1,024 bytes is cut short; control characters of one that
// comes are escaped, for a worker's goes on to logs and to callers' terminals.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace hilbert_ring::wire

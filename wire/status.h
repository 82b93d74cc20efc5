// One table between absl::Status and grpc::Status. A status that leaves the service carries a
// google.rpc.ErrorInfo with a reason such as "INVALID_SPEC", and a retry pushback where one is
// known.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace hilbert_ring::wire {

inline constexpr std::string_view kErrorDomain = "hilbert-ring";

// Attaches a reason, UPPER_SNAKE_CASE, to a status that is not OK. The innermost reason wins.
absl::Status WithReason(absl::Status status, std::string_view reason);

// The reason; a default by code when none is attached ("INVALID_ARGUMENT").
std::string ReasonOf(const absl::Status& status);

// Code, message and ErrorInfo, in either direction. A message of more than 1,024 bytes is cut
// short.
grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace hilbert_ring::wire

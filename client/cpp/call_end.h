// How a job's call ended, as far as the service did not say it in a message.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/cpp/cancel_watch.h"
#include "grpcpp/support/status.h"

namespace hilbert_ring::client {

absl::Status ProtocolError(const std::string& what);

// One that stops cancels its calls, and says no word of its own; the caller did not ask for that.
absl::Status EndOf(const grpc::Status& status, const CancelWatch& watch);

}  // namespace hilbert_ring::client

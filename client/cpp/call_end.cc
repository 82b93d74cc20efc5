#include "client/cpp/call_end.h"

#include "absl/strings/str_cat.h"
#include "wire/status.h"

namespace hilbert_ring::client {

absl::Status ProtocolError(const std::string& what) {
  return absl::InternalError(absl::StrCat("the service broke the protocol: ", what));
}

absl::Status EndOf(const grpc::Status& status, const CancelWatch& watch) {
  const bool unasked = status.error_code() == grpc::StatusCode::CANCELLED && !watch.fired();
  if (unasked && status.error_details().empty()) {
    return absl::UnavailableError("the service ended the call");
  }
  return wire::FromGrpc(status);
}

}  // namespace hilbert_ring::client

#include "wire/status.h"

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace hilbert_ring::wire {
namespace {

constexpr std::string_view kReasonPayload = "hilbert-ring/reason";

// absl and gRPC number their codes alike.
static_assert(static_cast<int>(absl::StatusCode::kInvalidArgument) ==
              grpc::StatusCode::INVALID_ARGUMENT);
static_assert(static_cast<int>(absl::StatusCode::kUnauthenticated) ==
              grpc::StatusCode::UNAUTHENTICATED);

}  // namespace

absl::Status WithReason(absl::Status status, std::string_view reason) {
  const absl::string_view url(kReasonPayload.data(), kReasonPayload.size());
  if (!status.ok() && !status.GetPayload(url).has_value()) {
    status.SetPayload(url, absl::Cord(absl::string_view(reason.data(), reason.size())));
  }
  return status;
}

std::string ReasonOf(const absl::Status& status) {
  const auto reason =
      status.GetPayload(absl::string_view(kReasonPayload.data(), kReasonPayload.size()));
  if (reason.has_value()) return std::string(*reason);
  return absl::StatusCodeToString(status.code());
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::ErrorInfo info;
  info.set_reason(ReasonOf(status));
  info.set_domain(std::string(kErrorDomain));
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(std::string(status.message()));
  details.add_details()->PackFrom(info);
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
          details.SerializeAsString()};
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const absl::Status bare(static_cast<absl::StatusCode>(status.error_code()),
                          status.error_message());
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return bare;
  for (const auto& detail : details.details()) {
    google::rpc::ErrorInfo info;
    if (detail.UnpackTo(&info) && info.domain() == kErrorDomain) {
      return WithReason(bare, info.reason());
    }
  }
  return bare;
}

}  // namespace hilbert_ring::wire

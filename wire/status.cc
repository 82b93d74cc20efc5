#include "wire/status.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/peer_error.h"
#include "engine/spec/field_error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "wire/control_characters.h"

namespace hilbert_ring::wire {
namespace {

constexpr std::string_view kReasonPayload = "hilbert-ring/reason";

constexpr char kFieldKey[] = "field";
constexpr char kLimitKey[] = "limit";
constexpr char kPeerKey[] = "peer";

static_assert(static_cast<int>(absl::StatusCode::kInvalidArgument) ==
              grpc::StatusCode::INVALID_ARGUMENT);
static_assert(static_cast<int>(absl::StatusCode::kUnauthenticated) ==
              grpc::StatusCode::UNAUTHENTICATED);

// A status travels in the trailer, which gRPC limits to 8 KiB. The message is there twice, once
// with three bytes for each byte that is not printable ASCII.
constexpr size_t kMostMessageBytes = 1024;

void AddField(const absl::Status& status, google::rpc::ErrorInfo& info) {
  const auto wrong = FieldOf(status);
  if (!wrong) return;
  (*info.mutable_metadata())[kFieldKey] = wrong->field;
  if (wrong->limit) (*info.mutable_metadata())[kLimitKey] = absl::StrCat(*wrong->limit);
}

absl::Status WithFieldOf(const google::rpc::ErrorInfo& info, const absl::Status& status) {
  const auto field = info.metadata().find(kFieldKey);
  if (field == info.metadata().end()) return status;
  const auto limit = info.metadata().find(kLimitKey);
  int64_t number = 0;
  if (limit == info.metadata().end() || !absl::SimpleAtoi(limit->second, &number)) {
    return WithField(status, field->second);
  }
  return WithField(status, field->second, number);
}

void AddPeer(const absl::Status& status, google::rpc::ErrorInfo& info) {
  if (const auto peer = PeerOf(status)) (*info.mutable_metadata())[kPeerKey] = absl::StrCat(*peer);
}

absl::Status WithPeerOf(const google::rpc::ErrorInfo& info, const absl::Status& status) {
  const auto peer = info.metadata().find(kPeerKey);
  int rank = 0;
  if (peer == info.metadata().end() || !absl::SimpleAtoi(peer->second, &rank)) return status;
  return WithPeer(status, rank);
}

// gRPC writes IPv6 addresses as in a URI: "ipv6:%5B::1%5D:8001" for "[::1]:8001".
std::string WithBrackets(const std::string& text) {
  constexpr absl::string_view kBegin = "ipv6:%5B";
  if (!absl::StrContains(text, kBegin)) return text;
  return absl::StrReplaceAll(text, {{kBegin, "["}, {"%5D", "]"}, {"%25", "%"}});
}

}  // namespace

absl::Status ErrorOf(const Reason& reason, std::string_view message) {
  return WithReason(absl::Status(reason.code, absl::string_view(message.data(), message.size())),
                    reason);
}

absl::Status WithReason(absl::Status status, const Reason& reason) {
  return WithReason(std::move(status), reason.name);
}

bool HasReason(const absl::Status& status, const Reason& reason) {
  return ReasonOf(status) == reason.name;
}

bool MayHelpLater(const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) return false;
  const Reason* const reason = FindReason(ReasonOf(status));
  return reason == nullptr || reason->again == TryAgain::kLater;
}

absl::Status WithReason(absl::Status status, std::string_view name) {
  const absl::string_view url(kReasonPayload.data(), kReasonPayload.size());
  if (!status.ok() && !status.GetPayload(url).has_value()) {
    status.SetPayload(url, absl::Cord(absl::string_view(name.data(), name.size())));
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
  AddField(status, info);
  AddPeer(status, info);
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  const std::string message = Shortened(std::string(status.message()), kMostMessageBytes);
  details.set_message(message);
  details.add_details()->PackFrom(info);
  return {static_cast<grpc::StatusCode>(status.code()), message, details.SerializeAsString()};
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status bare(static_cast<absl::StatusCode>(status.error_code()),
                    Legible(WithBrackets(status.error_message())));
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return bare;
  for (const auto& detail : details.details()) {
    google::rpc::ErrorInfo info;
    if (detail.UnpackTo(&info) && info.domain() == kErrorDomain) {
      return WithReason(WithPeerOf(info, WithFieldOf(info, bare)), Legible(info.reason()));
    }
  }
  return bare;
}

}  // namespace hilbert_ring::wire

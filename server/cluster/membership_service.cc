#include "server/cluster/membership_service.h"

#include <spdlog/spdlog.h>

#include <stop_token>
#include <utility>

#include "server/cluster/greeting.h"
#include "server/process/peer_network.h"
#include "server/process/tokens.h"
#include "wire/status.h"

namespace hilbert_ring::server {

grpc::Status MembershipService::Register(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::HeartbeatReply, v1::Heartbeat>* stream) {
  return metrics_.requests().Count("Register", [&] { return Serve(*context, *stream); });
}

grpc::Status MembershipService::Serve(grpc::ServerContext& context, RegisterStream& stream) {
  absl::Status status = CheckJoinToken(context, join_token_);
  if (status.ok()) status = CheckPeerName(context, peer_name_);
  if (!status.ok()) {
    metrics_.CountRefused(wire::ReasonOf(status));
    if (const auto refused = refusals_.Note(Clock::now())) {
      spdlog::warn("a worker at {} was refused: {} (refused since the last such line: {})",
                   AddressOfPeer(context.peer()), std::string(status.message()), *refused);
    }
    return wire::ToGrpc(status);
  }
  auto place = BlockingPlace::Enter(gate_, context);
  if (!place.ok()) return wire::ToGrpc(place.status());
  v1::Heartbeat heartbeat;
  const bool came = stream.Read(&heartbeat);
  if (!place->Open()) return wire::ToGrpc(place->why());
  if (!came) return wire::ToGrpc(absl::CancelledError("no heartbeat came"));
  const auto member = membership_.Register(heartbeat);
  if (!member.ok()) return wire::ToGrpc(member.status());
  // A silent worker is dropped by the membership, which ends the read below.
  const std::stop_callback end((*member)->departed.get_token(),
                               [&context] { context.TryCancel(); });
  Greeting greeting(membership_, *member, greet_interval_);
  bool first = true;
  do {
    if (!membership_.Beat(**member, heartbeat)) break;
    v1::HeartbeatReply reply = membership_.ReplyTo(**member);
    if (std::exchange(first, false)) reply.set_secret((*member)->secret);
    if (!stream.Write(reply)) break;
    greeting.Continue();
  } while (stream.Read(&heartbeat));
  membership_.Leave(**member);
  return grpc::Status::OK;
}

}  // namespace hilbert_ring::server

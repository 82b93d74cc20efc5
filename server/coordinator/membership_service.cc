#include "server/coordinator/membership_service.h"

#include <stop_token>

#include "server/coordinator/worker_figures.h"
#include "wire/status.h"

namespace hilbert_ring::server {

grpc::Status MembershipService::Register(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::HeartbeatReply, v1::Heartbeat>* stream) {
  auto place = BlockingPlace::Enter(gate_, *context);
  if (!place.ok()) return wire::ToGrpc(place.status());
  v1::Heartbeat heartbeat;
  const bool came = stream->Read(&heartbeat);
  if (!place->Open()) return wire::ToGrpc(place->why());
  if (!came) return wire::ToGrpc(absl::CancelledError("no heartbeat came"));
  for (const std::string_view figure : DropAbsurd(heartbeat)) metrics_.CountDropped(figure);
  const auto member = membership_.Join(heartbeat);
  if (!member.ok()) return wire::ToGrpc(member.status());
  // A silent worker is dropped by the membership, which ends the read below.
  const std::stop_callback end((*member)->departed.get_token(),
                               [context] { context->TryCancel(); });
  v1::HeartbeatReply reply;
  reply.set_interval_ms(membership_.BeatInterval().count());
  do {
    for (const std::string_view figure : DropAbsurd(heartbeat)) metrics_.CountDropped(figure);
    if (!membership_.Beat(**member, heartbeat)) break;
  } while (stream->Write(reply) && stream->Read(&heartbeat));
  membership_.Leave(**member);
  return grpc::Status::OK;
}

}  // namespace hilbert_ring::server

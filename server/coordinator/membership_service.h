// Workers' heartbeats: one stream, and one thread, for each worker.
#pragma once

#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "server/coordinator/membership.h"

namespace hilbert_ring::server {

class MembershipService : public v1::MembershipService::Service {
 public:
  explicit MembershipService(Membership& membership) : membership_(membership) {}

  grpc::Status Register(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::HeartbeatReply, v1::Heartbeat>* stream) override;

 private:
  Membership& membership_;
};

}  // namespace hilbert_ring::server

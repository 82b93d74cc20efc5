// Workers' heartbeats: one stream, and one thread, for each worker.
#pragma once

#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "server/coordinator/membership.h"
#include "server/process/call_gate.h"
#include "server/process/metrics.h"

namespace hilbert_ring::server {

class MembershipService : public v1::MembershipService::Service {
 public:
  // gate: whose streams may be open.
  MembershipService(Membership& membership, CallGate& gate, Metrics& metrics)
      : membership_(membership), gate_(gate), metrics_(metrics) {}

  grpc::Status Register(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::HeartbeatReply, v1::Heartbeat>* stream) override;

 private:
  Membership& membership_;
  CallGate& gate_;
  Metrics& metrics_;
};

}  // namespace hilbert_ring::server

// Receives workers' heartbeats: one stream and one thread for each worker, on the workers' port.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "hilbert_ring/v1/worker.grpc.pb.h"
#include "server/cluster/membership.h"
#include "server/metrics/metrics.h"
#include "server/process/call_gate.h"
#include "server/process/deadline.h"
#include "server/process/refusal_log.h"

namespace hilbert_ring::server {

class MembershipService : public v1::MembershipService::Service {
 public:
  // join_token, peer_name: required of workers; empty: not required.
  MembershipService(Membership& membership, CallGate& gate, Metrics& metrics,
                    std::string join_token, std::string peer_name = "",
                    Clock::duration greet_interval = std::chrono::seconds(10))
      : membership_(membership),
        gate_(gate),
        metrics_(metrics),
        join_token_(std::move(join_token)),
        peer_name_(std::move(peer_name)),
        greet_interval_(greet_interval) {}

  grpc::Status Register(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::HeartbeatReply, v1::Heartbeat>* stream) override;

 private:
  using RegisterStream = grpc::ServerReaderWriter<v1::HeartbeatReply, v1::Heartbeat>;
  grpc::Status Serve(grpc::ServerContext& context, RegisterStream& stream);

  Membership& membership_;
  CallGate& gate_;
  Metrics& metrics_;
  const std::string join_token_, peer_name_;
  const Clock::duration greet_interval_;
  RefusalLog refusals_;
};

}  // namespace hilbert_ring::server

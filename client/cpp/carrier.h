// Carries a conversation over one call of gRPC.
#pragma once

#include <memory>
#include <variant>

#include "absl/time/time.h"
#include "client/cpp/conversation.h"
#include "client/cpp/job_options.h"
#include "client/cpp/retry.h"
#include "grpcpp/channel.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::client {

// Blocks until the call is over. The calling thread receives; it also sends rows that are ready
// right after Open. A thread of the call's own sends later rows. The options traceparent and
// cancelled have an effect. GrpcDeadline takes the deadline.
std::variant<v1::Report, AttemptFailure> Carry(Conversation& conversation,
                                               const std::shared_ptr<grpc::Channel>& channel,
                                               absl::Time deadline, const JobOptions& options);

}  // namespace hilbert_ring::client

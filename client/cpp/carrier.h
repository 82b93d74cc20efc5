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

// Blocks until the call is over. The calling thread receives. What is to be sent at once after Open
// it sends before; what is to be sent later is sent by a thread of the call's own. Of the options
// it reads traceparent and cancelled. deadline: for GrpcDeadline.
std::variant<v1::Report, AttemptFailure> Carry(Conversation& conversation,
                                               const std::shared_ptr<grpc::Channel>& channel,
                                               absl::Time deadline, const JobOptions& options);

}  // namespace hilbert_ring::client

// Calls of the public port with one message each way: counted for the metrics, and refused where
// their host has too many at work.
//
//   return short_calls_.Serve("ListJobs", *context, [&] { return grpc::Status::OK; });
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "server/coordinator/refusals.h"
#include "server/metrics/metrics.h"
#include "server/process/call_limits.h"

namespace hilbert_ring::server {

// Thread-safe. Both outlive it.
class ShortCalls {
 public:
  ShortCalls(Metrics& metrics, const CallLimits& limits) : metrics_(metrics), limits_(limits) {}

  template <typename Handler>
  grpc::Status Serve(std::string_view method, grpc::ServerContext& context,
                     const Handler& handler) const {
    return metrics_.requests().Count(method, [&]() -> grpc::Status {
      const absl::Status room = limits_.Check(context);
      return room.ok() ? handler() : RefuseForNow(metrics_, room, kShortSeconds, context);
    });
  }

 private:
  static constexpr double kShortSeconds = 1;  // of work, until there is room

  Metrics& metrics_;
  const CallLimits& limits_;
};

}  // namespace hilbert_ring::server

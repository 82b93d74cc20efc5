// Cancels a gRPC call when its caller asks for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <stop_token>
#include <thread>

#include "engine/base/mutex.h"
#include "grpcpp/client_context.h"

namespace hilbert_ring::client {

// Until destroyed. Asks `cancelled` ten times a second, in a thread of its own, if it is set.
class CancelWatch {
 public:
  // Both must outlive the object. cancelled: empty where nobody cancels.
  CancelWatch(const std::function<bool()>& cancelled, grpc::ClientContext& context)
      : cancelled_(cancelled), context_(context) {}

  // Once, before the call begins.
  void Start();

  // Whether it has cancelled the call.
  bool fired() const { return fired_; }

 private:
  void Watch(const std::stop_token& stop);

  const std::function<bool()>& cancelled_;
  grpc::ClientContext& context_;
  std::atomic<bool> fired_ = false;
  Mutex mutex_;  // of wake_ alone
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: it uses all above
};

}  // namespace hilbert_ring::client

// Cancels a gRPC call when its caller asks for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <thread>

#include "engine/base/mutex.h"
#include "grpcpp/client_context.h"

namespace hilbert_ring::client {

// Until destroyed. Asks `cancelled` ten times a second, in a thread of its own, if it is set.
class CancelWatch {
 public:
  // Both must outlive the object.
  CancelWatch(const std::function<bool()>& cancelled, grpc::ClientContext& context);

  // Whether it has cancelled the call.
  bool fired() const { return fired_; }

 private:
  std::atomic<bool> fired_ = false;
  Mutex mutex_;  // of wake_ alone
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: it uses all above
};

}  // namespace hilbert_ring::client

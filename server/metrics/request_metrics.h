// Counts and times requests of the gRPC ports, by method and code.
//
//   RequestMetrics requests(registry, {"Plan", "GetCluster"});
//   return requests.Count("Plan", [&] { return MakePlan(...); });   // a status with error_code()
//
//   RequestMetrics::Request request = requests.Begin("Attend");     // where a call outlives its
//   request.End(absl::StatusCode::kOk);                             // handler
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace prometheus {
class Registry;
}  // namespace prometheus

namespace hilbert_ring::server {

// Thread-safe.
class RequestMetrics {
 private:
  struct Families;

 public:
  // A request under way. Its destructor ends it as CANCELLED.
  class Request {
   public:
    Request(Request&& other) noexcept
        : families_(other.families_), method_(std::move(other.method_)), begun_(other.begun_) {
      other.families_ = nullptr;
    }
    Request& operator=(Request&&) = delete;
    ~Request() { End(absl::StatusCode::kCancelled); }

    void End(absl::StatusCode code);  // only the first call counts

   private:
    friend class RequestMetrics;
    Request(Families* families, std::string method)
        : families_(families), method_(std::move(method)) {}
    Families* families_;  // null when ended or moved from
    std::string method_;
    std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  };

  // methods: labels that exist from the start, without package.
  RequestMetrics(prometheus::Registry& registry, const std::vector<std::string>& methods);
  ~RequestMetrics();

  Request Begin(std::string_view method);

  template <typename Handler>
  auto Count(std::string_view method, const Handler& handler) {
    Request request = Begin(method);
    auto status = handler();
    request.End(static_cast<absl::StatusCode>(status.error_code()));
    return status;
  }

 private:
  const std::unique_ptr<Families> families_;  // outlives its requests
};

}  // namespace hilbert_ring::server

#include "server/metrics/request_metrics.h"

#include "server/metrics/families.h"

namespace hilbert_ring::server {

struct RequestMetrics::Families {
  explicit Families(prometheus::Registry& registry)
      : requests(AddCounters(registry, "hilbert_ring_requests_total",
                             "gRPC requests that ended, by method and status code")),
        seconds(AddHistograms(registry, "hilbert_ring_request_seconds",
                              "Seconds of gRPC requests, by method")),
        in_flight(AddGauges(registry, "hilbert_ring_requests_in_flight",
                            "gRPC requests under way, by method")) {}

  Counters& requests;
  Histograms& seconds;
  Gauges& in_flight;
};

RequestMetrics::RequestMetrics(prometheus::Registry& registry,
                               const std::vector<std::string>& methods)
    : families_(std::make_unique<Families>(registry)) {
  for (const std::string& method : methods) {
    families_->requests.Add({{"method", method}, {"code", "OK"}});
    families_->seconds.Add({{"method", method}}, kSecondsBuckets);
    families_->in_flight.Add({{"method", method}});
  }
}

RequestMetrics::~RequestMetrics() = default;

RequestMetrics::Request RequestMetrics::Begin(std::string_view method) {
  Request request(families_.get(), std::string(method));
  families_->in_flight.Add({{"method", request.method_}}).Increment();
  return request;
}

void RequestMetrics::Request::End(absl::StatusCode code) {
  if (families_ == nullptr) return;
  Families& families = *std::exchange(families_, nullptr);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun_;
  families.in_flight.Add({{"method", method_}}).Decrement();
  families.seconds.Add({{"method", method_}}, kSecondsBuckets).Observe(seconds.count());
  families.requests.Add({{"method", method_}, {"code", absl::StatusCodeToString(code)}})
      .Increment();
}

}  // namespace hilbert_ring::server

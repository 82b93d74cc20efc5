// What the kernel says of this process, under the names that Prometheus's own client libraries use,
// and which build it is.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace prometheus {
struct MetricFamily;
}  // namespace prometheus

namespace hilbert_ring::server {

// proc: where the kernel's account is mounted. Figures that it does not give are left out.
std::vector<prometheus::MetricFamily> ProcessFigures(const std::string& proc = "/proc");

// ends: of certificates by name, in seconds since 1970.
prometheus::MetricFamily CertificateFigures(const std::map<std::string, double>& ends);

// hilbert_ring_build_info, which is 1.
prometheus::MetricFamily BuildInfo(const std::string& version);

}  // namespace hilbert_ring::server

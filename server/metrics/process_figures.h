// The kernel's figures of this process, named as by Prometheus's client libraries, and the build.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace prometheus {
struct MetricFamily;
}  // namespace prometheus

namespace hilbert_ring::server {

// proc: the kernel's mount. Missing figures are omitted.
std::vector<prometheus::MetricFamily> ProcessFigures(const std::string& proc = "/proc");

prometheus::MetricFamily CertificateFigures(const std::map<std::string, double>& ends);

prometheus::MetricFamily BuildInfo(const std::string& version);

}  // namespace hilbert_ring::server

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

// The text of `families`, of the process's figures, its certificates and its build.
std::string SerializeWithProcess(std::vector<prometheus::MetricFamily> families,
                                 const std::map<std::string, double>& certificate_ends,
                                 const std::string& version);

}  // namespace hilbert_ring::server

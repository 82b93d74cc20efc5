#include "server/metrics/families.h"

#include <prometheus/text_serializer.h>

namespace hilbert_ring::server {

using prometheus::Histogram;
using prometheus::Registry;

const Histogram::BucketBoundaries kSecondsBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,     10,   25,
                                                     50,    100,    250,   500,  1000,  2500, 5000};
const Histogram::BucketBoundaries kRatioBuckets = {0.5,  0.75, 0.9, 0.95, 0.99, 1,
                                                   1.01, 1.05, 1.1, 1.25, 1.5,  2};

Counters& AddCounters(Registry& registry, const std::string& name, const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

Gauges& AddGauges(Registry& registry, const std::string& name, const std::string& help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

Histograms& AddHistograms(Registry& registry, const std::string& name, const std::string& help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

prometheus::Counter& AddCounter(Registry& registry, const std::string& name,
                                const std::string& help) {
  return AddCounters(registry, name, help).Add({});
}

Histogram& AddHistogram(Registry& registry, const std::string& name, const std::string& help,
                        const Histogram::BucketBoundaries& buckets) {
  return AddHistograms(registry, name, help).Add({}, buckets);
}

ScrapedFamily ScrapedFamily::OfGauges(std::string name, std::string help) {
  ScrapedFamily made;
  made.family_ = {std::move(name), std::move(help), prometheus::MetricType::Gauge, {}};
  return made;
}

ScrapedFamily ScrapedFamily::OfCounters(std::string name, std::string help) {
  ScrapedFamily made = OfGauges(std::move(name), std::move(help));
  made.family_.type = prometheus::MetricType::Counter;
  return made;
}

ScrapedFamily& ScrapedFamily::Add(
    double value, const std::vector<std::pair<std::string, std::string>>& labels) & {
  prometheus::ClientMetric& metric = family_.metric.emplace_back();
  for (const auto& [name, text] : labels) metric.label.push_back({name, text});
  if (family_.type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return *this;
}

std::string SerializeText(const std::vector<prometheus::MetricFamily>& families) {
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace hilbert_ring::server

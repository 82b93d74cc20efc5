#include "server/metrics/families.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <utility>

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

void ShowGauges(MetricFamilies& families, std::string name, std::string help,
                const std::vector<Sample>& samples) {
  prometheus::MetricFamily& family = families.emplace_back();
  family = {std::move(name), std::move(help), prometheus::MetricType::Gauge, {}};
  for (const Sample& sample : samples) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label = sample.labels;
    metric.gauge.value = metric.counter.value = sample.value;
  }
}

void ShowGauge(MetricFamilies& families, std::string name, std::string help, double value) {
  ShowGauges(families, std::move(name), std::move(help), {{.value = value}});
}

void ShowCounters(MetricFamilies& families, std::string name, std::string help,
                  const std::vector<Sample>& samples) {
  ShowGauges(families, std::move(name), std::move(help), samples);
  families.back().type = prometheus::MetricType::Counter;
}

std::string SerializeText(const MetricFamilies& families) {
  MetricFamilies shown;
  std::ranges::copy_if(families, std::back_inserter(shown),
                       [](const auto& family) { return !family.metric.empty(); });
  return prometheus::TextSerializer().Serialize(shown);
}

}  // namespace hilbert_ring::server

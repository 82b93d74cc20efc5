// Families of prometheus-cpp's series: short forms and common buckets.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <string>
#include <vector>

namespace hilbert_ring::server {

using Counters = prometheus::Family<prometheus::Counter>;
using Gauges = prometheus::Family<prometheus::Gauge>;
using Histograms = prometheus::Family<prometheus::Histogram>;

extern const prometheus::Histogram::BucketBoundaries kSecondsBuckets;
extern const prometheus::Histogram::BucketBoundaries kRatioBuckets;

Counters& AddCounters(prometheus::Registry& registry, const std::string& name,
                      const std::string& help);
Gauges& AddGauges(prometheus::Registry& registry, const std::string& name, const std::string& help);
Histograms& AddHistograms(prometheus::Registry& registry, const std::string& name,
                          const std::string& help);

prometheus::Counter& AddCounter(prometheus::Registry& registry, const std::string& name,
                                const std::string& help);
prometheus::Histogram& AddHistogram(prometheus::Registry& registry, const std::string& name,
                                    const std::string& help,
                                    const prometheus::Histogram::BucketBoundaries& buckets);

using MetricFamilies = std::vector<prometheus::MetricFamily>;

struct Sample {
  double value = 0;
  std::vector<prometheus::ClientMetric::Label> labels;
};

// Add a family to `families`, made for each scrape so that series do not outlive their subject.
void ShowGauges(MetricFamilies& families, std::string name, std::string help,
                const std::vector<Sample>& samples);
void ShowGauge(MetricFamilies& families, std::string name, std::string help, double value);
void ShowCounters(MetricFamilies& families, std::string name, std::string help,
                  const std::vector<Sample>& samples);

std::string SerializeText(const MetricFamilies& families);  // without families that have no series

}  // namespace hilbert_ring::server

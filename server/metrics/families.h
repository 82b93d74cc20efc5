// Families of prometheus-cpp's series: short forms and common buckets.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <string>
#include <utility>
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

// Series made for each scrape, so that they do not outlive their subject.
class ScrapedFamily {
 public:
  static ScrapedFamily OfGauges(std::string name, std::string help);
  static ScrapedFamily OfCounters(std::string name, std::string help);

  ScrapedFamily& Add(double value,
                     const std::vector<std::pair<std::string, std::string>>& labels = {}) &;
  ScrapedFamily Add(double value,
                    const std::vector<std::pair<std::string, std::string>>& labels = {}) && {
    Add(value, labels);
    return std::move(*this);
  }

  prometheus::MetricFamily Take() && { return std::move(family_); }

 private:
  prometheus::MetricFamily family_;
};

std::string SerializeText(const std::vector<prometheus::MetricFamily>& families);

}  // namespace hilbert_ring::server

// Figures that workers say of themselves. They reach metrics, reports and the scheduler: what
// cannot be is dropped before.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "hilbert_ring/v1/worker.pb.h"
#include "server/metrics/metrics.h"

namespace hilbert_ring::server {

inline constexpr int32_t kMostWorkerThreads = 4096;  // and as many express lanes

// Set to 0 where they are not a number, negative, or more than anything can have; names longer than
// 128 bytes are cut short, and their control characters are replaced; of more spans than
// `most_spans` none is kept. Returns the fields that were, as the messages call them.
std::vector<std::string_view> DropAbsurd(v1::WorkerReport& report, int most_spans);

// Of its cancel_seconds the absurd ones, and those beyond the first 1,024, go. The address is not
// touched.
std::vector<std::string_view> DropAbsurd(v1::Heartbeat& heartbeat);

// Whether a job's progress is one.
bool IsAbsurd(const v1::RunProgress& progress);

// Of a report whose figures can be.
WorkerShare ShareOf(const v1::WorkerReport& worker);

}  // namespace hilbert_ring::server

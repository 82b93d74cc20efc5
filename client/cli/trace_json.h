// A job's timeline as JSON for Perfetto (ui.perfetto.dev) and chrome://tracing. The job and each
// worker are processes. Concurrent activities have tracks of their own.
#pragma once

#include <string>

#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::cli {

std::string TraceAsJson(const v1::Report& report);

void RemoveSpans(v1::Report& report);

}  // namespace hilbert_ring::cli

// The timeline of a job as the JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open: the
// job and each worker is a process, and what goes on at once is on tracks of its own.
#pragma once

#include <string>

#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::cli {

// Of a report with spans.
std::string TraceAsJson(const v1::Report& report);

void RemoveSpans(v1::Report& report);

}  // namespace hilbert_ring::cli

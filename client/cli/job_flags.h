// The job of a command: a spec's file, flags that replace its fields, or flags alone.
//
//   JobFlags job;
//   AddJobFlags(app, job, Tensors::kRequired);   // --spec, --q, --segments, --kv-heads, ...
//   app.parse(argc, argv);
//   absl::StatusOr<client::JobSource> source = SourceOf(global, job);
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/job_files.h"
#include "nlohmann/json.hpp"

namespace CLI {
class App;
}

namespace hilbert_ring::cli {

struct GlobalOptions;

struct JobFlags {
  std::string spec, coords, bias_coords, q, k, v;    // paths; empty: not given
  nlohmann::json fields = nlohmann::json::object();  // the flags' part of the spec
};

enum class Tensors { kRequired, kOptional };

// job must outlive app, also below.
void AddJobFlags(CLI::App& app, JobFlags& job, Tensors tensors);

// Adds the flags of the spec, without tensors.
void AddSpecFlags(CLI::App& app, JobFlags& job);

// Prints the choice of --curve auto. INVALID_ARGUMENT: neither a spec nor segments, or flags of an
// ordering beside --curve none.
absl::StatusOr<client::JobSource> SourceOf(const GlobalOptions& global, const JobFlags& flags);

}  // namespace hilbert_ring::cli

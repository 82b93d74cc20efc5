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
  std::string spec, coords, q, k, v;                 // paths; empty: not given
  nlohmann::json fields = nlohmann::json::object();  // of the spec, those that a flag gives
};

enum class Tensors { kRequired, kOptional };

// job must outlive app.
void AddJobFlags(CLI::App& app, JobFlags& job, Tensors tensors);

// Of those, all that say what the spec is; of no tensor. job must outlive app.
void AddSpecFlags(CLI::App& app, JobFlags& job);

// Says which curve --curve auto took. INVALID_ARGUMENT: neither a spec nor segments, flags of an
// ordering beside --curve none.
absl::StatusOr<client::JobSource> SourceOf(const GlobalOptions& global, const JobFlags& flags);

}  // namespace hilbert_ring::cli

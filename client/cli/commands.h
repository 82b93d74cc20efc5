// The subcommands of `hilbert-ring`. main.cc fills a command from the command line and runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/job_flags.h"
#include "client/cpp/access.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace CLI {
class App;
}

namespace hilbert_ring::cli {

inline constexpr int kExitOk = 0;
// The service or a job failed, `verify` found a deviation, or stdout cannot be written.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadInput = 2;  // command line, spec or files; nothing was sent

enum class OutputFormat { kText, kJson };

struct GlobalOptions {
  std::string server = "localhost:8001";
  client::Access access;
  OutputFormat format = OutputFormat::kText;
};

struct CallFlags {
  std::string report, trace;  // paths; empty: not written
  std::string job_id;
  std::optional<double> deadline_seconds;  // of the whole job; above 0
  std::optional<double> outage_seconds;    // limit of one outage of the service
  int max_attempts = 10;
};

struct ReferenceFlags {
  std::string by_reference = "auto";  // or "always", "never"
  std::string data_root;              // on this machine; empty: the service's own path
};

struct StreamFlags {
  bool stream = false;
  std::string qkv;           // path; empty: q, k and v have their own files
  bool follow = false;       // regular files grow
  int64_t epoch_tokens = 0;  // 0: the service's maximum
};

struct AttendCommand {
  JobFlags job;
  CallFlags call;
  std::string out;
  std::string lse;  // path; empty: not written
  ReferenceFlags reference;
  StreamFlags stream;
};

struct ManyCommand {
  std::string jobs;  // path of lines of JSON; "-": stdin
  JobFlags job;      // defaults of all jobs, without tensors
  CallFlags call;    // shared by all jobs; report, trace and job_id are unused
};

inline constexpr char kPatchesFlag[] = "--patches";
struct SlideFlags {
  std::string file;                            // empty: not given
  std::map<std::string, std::string> options;  // by flag; empty: not given
};

struct EncodeCommand {
  CallFlags call;
  ReferenceFlags reference;
  SlideFlags slide;                          // instead of tiles and coords
  std::string model, out;                    // a name, and a path
  std::string tiles, coords, attention_map;  // paths; empty: none
  std::string pool, final_norm;              // empty: the model's
  std::string layers = "last";
  std::string compute = "float32";
  std::vector<int64_t> sequence_lengths;  // empty: one slide
  std::optional<int64_t> attention_map_layer;
  bool attention_map_heads = false;
  bool plan = false;  // sends nothing; out may be empty
  int workers = 0;    // the number to plan for; 0: all that have the model
};

struct PlanCommand {
  JobFlags job;
  int workers = 0;  // 0: all that the service has; with local: 1
  bool local = false;
};

struct VerifyCommand {
  JobFlags job;
  std::string out;
  std::string lse;  // path; empty: not checked
  int64_t rows = 64;
  uint64_t seed = 0;
};

struct CancelCommand {
  std::string job_id;
  std::string caller;  // the job's owner; empty: the caller
};

// Each prints its result on stdout and errors on stderr, and returns an exit code.
int RunAttend(const GlobalOptions& global, const AttendCommand& command);
int RunAttendStream(const GlobalOptions& global, const AttendCommand& command);
int RunAttendMany(const GlobalOptions& global, const ManyCommand& command);
int RunEncode(const GlobalOptions& global, const EncodeCommand& given);
int RunModels(const GlobalOptions& global);
int RunPlan(const GlobalOptions& global, const PlanCommand& command);
int RunStatus(const GlobalOptions& global);
int RunJobs(const GlobalOptions& global);
int RunCancel(const GlobalOptions& global, const CancelCommand& command);
int RunVerify(const GlobalOptions& global, const VerifyCommand& command);

// Prints to stdout, as tables or as JSON. tokens: of the job. Returns the exit code.
int PrintPlan(const GlobalOptions& global, int64_t tokens, const v1::PlanResponse& plan);

struct Subcommand {
  const CLI::App* app = nullptr;
  std::function<int(const GlobalOptions& global)> run;  // after parsing; returns the exit code
  std::function<bool()> calls = [] { return true; };    // whether it calls the service
};

// Adds all commands except those of the Python package. app must outlive them.
std::vector<Subcommand> AddSubcommands(CLI::App& app);

int RunVersion(const GlobalOptions& global);

}  // namespace hilbert_ring::cli

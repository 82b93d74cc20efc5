// The command line of Hilbert Ring.

#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>

#include "CLI/CLI.hpp"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/usage.h"
#include "client/cpp/file_mapping.h"
#include "wire/server_address.h"

namespace hilbert_ring::cli {
namespace {

constexpr char kFields[] = "Fields of the spec";  // a group of options

enum class Tensors { kRequired, kOptional };

// The job: files, and the fields of the spec.
void AddJob(CLI::App& app, JobFlags& job, Tensors tensors) {
  app.add_option("--spec", job.spec,
                 "the job, as JSON (-: from stdin); flags replace its fields, or stand alone");
  const bool required = tensors == Tensors::kRequired;
  app.add_option("--q", job.q, ".npy [tokens, heads, head_dim]")->required(required);
  app.add_option("--k", job.k, ".npy [tokens, kv_heads, head_dim]")->required(required);
  app.add_option("--v", job.v, ".npy [tokens, kv_heads, value_dim]")->required(required);
  app.add_option(
      "--coords", job.coords,
      ".npy [tokens, 2 or 3], integers (x, y) or (x, y, z), that is (column, row, plane); "
      "replaces the spec's coords_file");

  const auto flag = [&app](const char* name, std::optional<bool>& value, const char* description) {
    app.add_flag(name, value, description)->group(kFields);
  };
  const auto field = [&app](const char* name, auto& value, const char* description) {
    return app.add_option(name, value, description)->group(kFields);
  };
  field("--segments", job.segments, "lengths, one a branch: 2048,16384")->delimiter(',');
  field("--dilations", job.dilations, "rates, one a branch: 1,8")->delimiter(',');
  field("--mixing", job.mixing, "head_groups or lse");
  flag("--causal,!--no-causal", job.causal, "a query sees keys of its own and earlier tokens");
  field("--scale", job.scale, "of the scores; 1 / sqrt(head_dim) when not given");
  field("--tail", job.tail, "mask or zero");
  flag("--average-groups,!--no-average-groups", job.average_groups,
       "head_groups: divide outputs by the number of branches");
  field("--sequence-lengths", job.sequence_lengths, "of packed sequences: 100,200")->delimiter(',');
  field("--curve,--ordering", job.curve, "hilbert or morton: the ordering; none: no ordering");
  field("--scope", job.scope, "of the ordering: qkv or kv");
  field("--window", job.window, "of the ordering, tokens");
  field("--grid", job.grid, "of the ordering: rows,cols or planes,rows,cols")->delimiter(',');
  const char* kFromFiles = "from q, k and v when not given";
  field("--tokens", job.tokens, kFromFiles);
  field("--heads", job.heads, kFromFiles);
  field("--kv-heads", job.kv_heads, kFromFiles);
  field("--head-dim", job.head_dim, kFromFiles);
  field("--value-dim", job.value_dim, kFromFiles);
  field("--dtype", job.dtype,
        "float32, bfloat16 or float16; from q, k and v when not given, but for 16-bit integers");
}

int Main(int argc, char** argv) {
  // glibc would map and unmap the memory of every message: page faults were 78 % of the time of a
  // stream over loopback (AMD EPYC Zen 4, gRPC 1.51).
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  // A file above the limit of the user's session is an error of the call, not the end of the
  // process.
  std::signal(SIGXFSZ, SIG_IGN);
  client::CatchLostBytes();

  CLI::App app("Exact attention over long sequences, computed by a Hilbert Ring service.",
               "hilbert-ring");
  app.require_subcommand(1);
  app.fallthrough();
  GlobalOptions global;
  bool json = false;
  app.add_option("--server", global.server, "host:port of the coordinator")
      ->envname("HILBERT_RING_SERVER")
      ->capture_default_str();
  app.add_flag("--json", json, "print the result as JSON, and errors, a line each, on stderr");
  app.set_version_flag("--version", "hilbert-ring " HILBERT_RING_VERSION);
  app.footer(
      "Exit codes: 0: done; 1: the service or the job failed, or verify found a deviation; 2: "
      "command line, spec or files are wrong, and nothing was sent.");

  AttendCommand attend;
  CLI::App* attend_app = app.add_subcommand("attend", "run a job on .npy files");
  AddJob(*attend_app, attend.job, Tensors::kRequired);
  attend_app->add_option("--out", attend.out, ".npy to write: [tokens, heads, value_dim]")
      ->required();
  attend_app->add_option("--lse", attend.lse,
                         ".npy to write: [tokens, heads], logarithms of the softmax denominators");
  attend_app->add_option("--report", attend.report, "JSON to write: what the service measured");
  attend_app->add_option("--job-id", attend.job_id, "name of the job; drawn when not given");
  attend_app->add_option("--deadline", attend.deadline_seconds,
                         "seconds for the whole job, all attempts together");
  attend_app
      ->add_option("--outage-timeout", attend.outage_seconds,
                   "seconds that the service may be away at a stretch; not given: until the "
                   "deadline, or 30 without one")
      ->check(CLI::Range(0.0, 1e9));
  attend_app
      ->add_option(
          "--max-attempts", attend.max_attempts,
          "how often the job is sent when the service is busy or loses it; times when the service "
          "was away do not count, nor, with a deadline, those when it was full; 1: a failure is "
          "final")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();

  PlanCommand plan;
  CLI::App* plan_app = app.add_subcommand("plan", "explain a job without running it");
  AddJob(*plan_app, plan.job, Tensors::kOptional);
  plan_app
      ->add_option("--workers", plan.workers,
                   "number of workers; as many as the service has when not given (--local: 1)")
      ->check(CLI::Range(1, 65536));
  plan_app->add_flag("--local", plan.local, "plan in this process, without a service");

  CLI::App* status_app = app.add_subcommand("status", "show workers, memory, rings and jobs");

  CLI::App* jobs_app = app.add_subcommand("jobs", "list your jobs that wait or run");
  CancelCommand cancel;
  CLI::App* cancel_app = app.add_subcommand("cancel", "end one of your jobs");
  cancel_app->add_option("job", cancel.job_id, "its id, as jobs prints it")->required();

  VerifyCommand verify;
  CLI::App* verify_app =
      app.add_subcommand("verify", "compute a sample of rows again in float64 and compare");
  AddJob(*verify_app, verify.job, Tensors::kRequired);
  verify_app->add_option("--out", verify.out, ".npy [tokens, heads, value_dim] to check")
      ->required();
  verify_app->add_option("--lse", verify.lse, ".npy [tokens, heads] to check");
  verify_app->add_option("--rows", verify.rows, "rows to compute again")
      ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  verify_app->add_option("--seed", verify.seed, "of the sample")->capture_default_str();

  CLI::App* version_app = app.add_subcommand("version", "print the version");

  std::string shell;
  CLI::App* completion_app =
      app.add_subcommand("completion", "print a script that completes these commands in a shell");
  completion_app->add_option("shell", shell, "bash, zsh or fish")->required();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    // Not everything has been read.
    const bool asked_for_json =
        std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
    global.format = asked_for_json ? OutputFormat::kJson : OutputFormat::kText;
    return BadInput(global, UsageError(app, error));
  }
  if (json) global.format = OutputFormat::kJson;
  const bool calls = attend_app->parsed() || status_app->parsed() || jobs_app->parsed() ||
                     cancel_app->parsed() || (plan_app->parsed() && !plan.local);
  if (absl::Status status = wire::CheckServerAddress("--server", global.server);
      calls && !status.ok()) {
    return BadInput(global, status);
  }
  if (attend_app->parsed()) return RunAttend(global, attend);
  if (plan_app->parsed()) return RunPlan(global, plan);
  if (status_app->parsed()) return RunStatus(global);
  if (jobs_app->parsed()) return RunJobs(global);
  if (cancel_app->parsed()) return RunCancel(global, cancel);
  if (verify_app->parsed()) return RunVerify(global, verify);
  if (version_app->parsed()) return RunVersion(global);
  const absl::StatusOr<std::string> script = CompletionScript(app, shell);
  if (!script.ok()) return BadInput(global, script.status());
  std::fputs(script->c_str(), stdout);
  return kExitOk;
}

}  // namespace
}  // namespace hilbert_ring::cli

int main(int argc, char** argv) { return hilbert_ring::cli::Main(argc, argv); }

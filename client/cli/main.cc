// The command line of Hilbert Ring. The only file that includes CLI11.

#include <malloc.h>

#include <csignal>
#include <limits>
#include <string>

#include "CLI/CLI.hpp"
#include "client/cli/commands.h"
#include "client/cli/failure.h"

namespace hilbert_ring::cli {
namespace {

void AddTensors(CLI::App& app, std::string& spec, std::string& q, std::string& k, std::string& v) {
  app.add_option("--spec", spec, "the job, as JSON")->required();
  app.add_option("--q", q, ".npy [tokens, heads, head_dim]")->required();
  app.add_option("--k", k, ".npy [tokens, kv_heads, head_dim]")->required();
  app.add_option("--v", v, ".npy [tokens, kv_heads, value_dim]")->required();
}

constexpr char kCoordsHelp[] =
    ".npy [tokens, 2 or 3], integers: the file that the spec's coords_file stands for";

int Main(int argc, char** argv) {
  // glibc would map and unmap the memory of every message: page faults were 78 % of the time of a
  // stream over loopback (AMD EPYC Zen 4, gRPC 1.51).
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
  // A file above the limit of the user's session is an error of the call, not the end of the
  // process.
  std::signal(SIGXFSZ, SIG_IGN);

  CLI::App app("Exact attention over long sequences, computed by a Hilbert Ring service.",
               "hilbert-ring");
  app.require_subcommand(1);
  app.fallthrough();
  GlobalOptions global;
  bool json = false;
  app.add_option("--server", global.server, "host:port of the coordinator")
      ->envname("HILBERT_RING_SERVER")
      ->capture_default_str();
  app.add_flag("--json", json, "print the result as JSON");

  AttendCommand attend;
  CLI::App* attend_app = app.add_subcommand("attend", "run a job on .npy files");
  AddTensors(*attend_app, attend.spec, attend.q, attend.k, attend.v);
  attend_app->add_option("--out", attend.out, ".npy to write: [tokens, heads, value_dim]")
      ->required();
  attend_app->add_option("--lse", attend.lse,
                         ".npy to write: [tokens, heads], logarithms of the softmax denominators");
  attend_app->add_option("--coords", attend.coords, kCoordsHelp);
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
  plan_app->add_option("--spec", plan.spec, "the job, as JSON")->required();
  plan_app->add_option("--coords", plan.coords, kCoordsHelp);
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
  AddTensors(*verify_app, verify.spec, verify.q, verify.k, verify.v);
  verify_app->add_option("--out", verify.out, ".npy [tokens, heads, value_dim] to check")
      ->required();
  verify_app->add_option("--lse", verify.lse, ".npy [tokens, heads] to check");
  verify_app->add_option("--coords", verify.coords, kCoordsHelp);
  verify_app->add_option("--rows", verify.rows, "rows to compute again")
      ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  verify_app->add_option("--seed", verify.seed, "of the sample")->capture_default_str();

  CLI::App* version_app = app.add_subcommand("version", "print the version");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return BadInput(absl::InvalidArgumentError(
        std::string(error.what()) +
        "; hilbert-ring --help and hilbert-ring SUBCOMMAND --help tell more"));
  }
  if (json) global.format = OutputFormat::kJson;
  if (attend_app->parsed()) return RunAttend(global, attend);
  if (plan_app->parsed()) return RunPlan(global, plan);
  if (status_app->parsed()) return RunStatus(global);
  if (jobs_app->parsed()) return RunJobs(global);
  if (cancel_app->parsed()) return RunCancel(global, cancel);
  if (verify_app->parsed()) return RunVerify(global, verify);
  if (version_app->parsed()) return RunVersion(global);
  return kExitBadInput;
}

}  // namespace
}  // namespace hilbert_ring::cli

int main(int argc, char** argv) { return hilbert_ring::cli::Main(argc, argv); }

#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/flags.h"
#include "client/cli/usage.h"
#include "engine/plan/plan.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::cli {
namespace {

template <typename Options>
Subcommand CommandOf(CLI::App& app, std::shared_ptr<Options> options,
                     int (*run)(const GlobalOptions&, const Options&)) {
  return {.app = &app, .run = [options = std::move(options), run](const GlobalOptions& global) {
            return run(global, *options);
          }};
}

Subcommand AddAttend(CLI::App& app) {
  const auto attend = std::make_shared<AttendCommand>();
  AddJobFlags(app, attend->job, Tensors::kOptional);
  AddFile(app, "--out", attend->out, ".npy to write: [tokens, heads, value_dim]")
      ->required()
      ->check(NotEmpty("expected a path"));
  AddFile(app, "--lse", attend->lse,
          ".npy to write: [tokens, heads], natural logarithms of the softmax denominators");
  AddStreamFlags(app, attend->stream);
  AddReferenceFlags(app, attend->reference);
  AddCallFlags(app, attend->call);
  return CommandOf(app, attend, RunAttend);
}

Subcommand AddMany(CLI::App& app) {
  const auto many = std::make_shared<ManyCommand>();
  app.add_option(
         "jobs", many->jobs,
         "lines of JSON, a job each (-: stdin): paths q, k, v and out; optional coords, "
         "bias_coords, lse and "
         "job_id; and spec, an object whose fields replace those of the flags, which all jobs "
         "share")
      ->type_name("FILE")
      ->required();
  AddSpecFlags(app, many->job);
  AddAttemptFlags(app, many->call);
  return CommandOf(app, many, RunAttendMany);
}

Subcommand AddEncode(CLI::App& app) {
  const auto encode = std::make_shared<EncodeCommand>();
  AddEncodeFlags(app, *encode);
  return CommandOf(app, encode, RunEncode);
}

Subcommand AddPlan(CLI::App& app) {
  const auto plan = std::make_shared<PlanCommand>();
  AddJobFlags(app, plan->job, Tensors::kOptional);
  app.add_option("--workers", plan->workers,
                 absl::StrCat("number of workers, 1 to ", kMaxWorkers,
                              " (default: all that the service has; --local: 1)"))
      ->type_name("N")
      ->check(From1To(kMaxWorkers));
  app.add_flag("--local", plan->local, "plan in this process, without a service");
  Subcommand command = CommandOf(app, plan, RunPlan);
  command.calls = [plan] { return !plan->local; };
  return command;
}

Subcommand AddCancel(CLI::App& app) {
  const auto cancel = std::make_shared<CancelCommand>();
  app.add_option("job", cancel->job_id, "id of the job, as printed by jobs")
      ->type_name("ID")
      ->required();
  app.add_option("--caller", cancel->caller,
                 "owner of the job, as printed by jobs; only administrators give it (default: you)")
      ->type_name("NAME");
  return CommandOf(app, cancel, RunCancel);
}

Subcommand AddVerify(CLI::App& app) {
  const auto verify = std::make_shared<VerifyCommand>();
  AddJobFlags(app, verify->job, Tensors::kRequired);
  AddFile(app, "--out", verify->out, ".npy [tokens, heads, value_dim] to check")
      ->required()
      ->check(NotEmpty("expected a path"));
  AddFile(app, "--lse", verify->lse, ".npy [tokens, heads] to check");
  app.add_option("--rows", verify->rows, "number of rows to compute again")
      ->type_name("N")
      ->check(From1To(std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  app.add_option("--seed", verify->seed, "seed of the sample")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()).description(""))
      ->capture_default_str();
  Subcommand command = CommandOf(app, verify, RunVerify);
  command.calls = [] { return false; };
  return command;
}

Subcommand AddCompletion(CLI::App& app, const CLI::App& root) {
  const auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell)->type_name("bash|zsh|fish")->required();
  return {.app = &app,
          .run =
              [&root, shell](const GlobalOptions& global) {
                const absl::StatusOr<std::string> script = CompletionScript(root, *shell);
                if (!script.ok()) return BadInput(global, script.status());
                std::fputs(script->c_str(), stdout);
                return kExitOk;
              },
          .calls = [] { return false; }};
}

}  // namespace

int RunVersion(const GlobalOptions& global) {
  if (global.format == OutputFormat::kJson) {
    std::printf("%s\n", nlohmann::json({{"version", HILBERT_RING_VERSION}}).dump().c_str());
  } else {
    std::printf("hilbert-ring %s\n", HILBERT_RING_VERSION);
  }
  return kExitOk;
}

// Order of the help.
std::vector<Subcommand> AddSubcommands(CLI::App& app) {
  const auto add = [&app](const char* name, const char* help) -> CLI::App& {
    return *app.add_subcommand(name, help);
  };
  std::vector<Subcommand> commands;
  commands.push_back(AddAttend(add("attend", "run a job on .npy files, or on a stream of rows")));
  commands.push_back(AddMany(add("attend-many", "run many small jobs, with few calls")));
  commands.push_back(
      AddEncode(add("encode", "embeddings of slides: tiles through all layers of a model")));
  commands.push_back({.app = &add("models", "list the models of encoders"), .run = RunModels});
  commands.push_back(AddPlan(add("plan", "explain a job without running it")));
  commands.push_back(
      {.app = &add("status", "show workers, memory, rings and jobs"), .run = RunStatus});
  commands.push_back({.app = &add("jobs", "list your jobs that wait or run"), .run = RunJobs});
  commands.push_back(AddCancel(add("cancel", "end one of your jobs")));
  commands.push_back(
      AddVerify(add("verify", "compute a sample of rows again in float64 and compare")));
  commands.push_back({.app = &add("version", "print the version"), .run = RunVersion, .calls = [] {
                        return false;
                      }});
  commands.push_back(AddCompletion(
      add("completion", "print a script that completes these commands in a shell"), app));
  return commands;
}

}  // namespace hilbert_ring::cli

#include "client/cli/flags.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hilbert_ring::cli {
namespace {

// Rejects NaN and infinities too.
CLI::Validator SecondsFrom(double least) {
  return CLI::Validator(
      [least](const std::string& text) {
        constexpr double kMost = 1e9;
        double seconds = 0;
        const bool in_range =
            absl::SimpleAtod(text, &seconds) && seconds >= least && seconds <= kMost;
        return in_range ? ""
                        : absl::StrCat(text, ", expected a number of seconds from ", least, " to ",
                                       kMost);
      },
      "");
}

// Adds an option with the values "a|b|c", which --help shows.
CLI::Option* Choice(CLI::App& app, const char* flag, std::string& value, const char* choices,
                    const char* help) {
  const std::vector<std::string> known = absl::StrSplit(choices, '|');
  const CLI::Validator check(
      [known, choices](const std::string& text) {
        const bool found = std::ranges::find(known, text) != known.end();
        return found ? "" : absl::StrCat(text, ", must be ", choices);
      },
      "");
  return app.add_option(flag, value, help)->type_name(choices)->check(check);
}

struct SlideOption {
  const char* flag;
  const char* type;
  const char* help;
};

// The package parses their values.
constexpr SlideOption kSlideOptions[] = {
    {"--layout", "atlaspatch|trident|raw2features|stamp|slide2vec|clam",
     "layout of --slide (default: by its names and attributes)"},
    {"--features", "NAME", "data set of --slide, or its encoder (default: features or feats)"},
    {"--coordinates", "NAME", "data set of --slide with coordinates (default: coords)"},
    {kPatchesFlag, "FILE",
     "file with the coordinates of --slide or their attributes (default: in a folder beside it)"},
    {"--coord-scale", "NUMBER", "factor of --slide's coordinates (default: by its attributes)"},
    {"--coords-are", "tiles|pixels",
     "unit of --slide's coordinates: columns and rows, or the model's pixels (default: by its "
     "attributes)"}};

void AddSlideFlags(CLI::App& app, SlideFlags& flags) {
  CLI::Option* const slide =
      app.add_option(
             "--slide", flags.file,
             "slide pipeline's file instead of --tiles and --coords: HDF5, .pt or .npz; the Python "
             "package first writes it to TMPDIR as .npy")
          ->type_name("FILE")
          ->check(NotEmpty("must be given"));
  for (const char* flag : {"--tiles", "--coords"}) slide->excludes(app.get_option(flag));
  for (const SlideOption& option : kSlideOptions) {
    app.add_option(option.flag, flags.options[option.flag], option.help)
        ->type_name(option.type)
        ->check(NotEmpty("must be given"))
        ->needs(slide);
  }
}

}  // namespace

CLI::Option* AddFile(CLI::App& app, const char* flag, std::string& path, const char* help) {
  return app.add_option(flag, path, help)->type_name("FILE");
}

CLI::Validator NotEmpty(const char* expected) {
  return CLI::Validator(
      [expected](const std::string& text) {
        return text.empty() ? absl::StrCat("is empty, ", expected) : "";
      },
      "");
}

void AddCallFlags(CLI::App& app, CallFlags& flags) {
  AddFile(app, "--report", flags.report,
          "JSON to write: the service's report of the job (-: stdout)");
  AddFile(app, "--trace", flags.trace,
          "JSON to write: the job's timeline in the format of Perfetto and chrome://tracing (-: "
          "stdout)");
  app.add_option("--job-id", flags.job_id, "name of the job (default: drawn)")->type_name("NAME");
  AddAttemptFlags(app, flags);
}

void AddAttemptFlags(CLI::App& app, CallFlags& flags) {
  app.add_option("--deadline", flags.deadline_seconds,
                 "limit of the whole job with all attempts (default: no limit)")
      ->type_name("SECONDS")
      ->check(SecondsFrom(0.001));
  app.add_option("--outage-timeout", flags.outage_seconds,
                 "limit of one outage of the service (default: the deadline, or 30 without one)")
      ->type_name("SECONDS")
      ->check(SecondsFrom(0));
  app.add_option(
         "--max-attempts", flags.max_attempts,
         "attempts if the service is busy or loses the job, 1 to 1000; an attempt that finds the "
         "service away does not count, nor, with a deadline, an attempt that finds it full; 1: a "
         "failure is final")
      ->type_name("N")
      ->check(From1To(1000))
      ->capture_default_str();
}

void AddReferenceFlags(CLI::App& app, ReferenceFlags& flags) {
  Choice(app, "--by-reference", flags.by_reference, "auto|always|never",
         "auto: files beneath the service's data root, if this machine sees it too, pass by "
         "path: the workers read and write them; others are sent; always: an error if "
         "tensors would be sent; never: all tensors are sent")
      ->capture_default_str();
  app.add_option("--data-root", flags.data_root,
                 "path of the service's data root on this machine (default: the service's path)")
      ->type_name("FOLDER");
}

void AddStreamFlags(CLI::App& app, StreamFlags& flags) {
  app.add_flag("--stream", flags.stream,
               "q, k and v are pipes or files of raw rows of unknown number. The service computes "
               "them epoch by epoch; --out and --lse get raw rows in order (-: stdout). The spec "
               "has no tokens, and its sequence_lengths repeat. The first Ctrl-C ends the input");
  app.add_option("--qkv", flags.qkv,
                 "with --stream, instead of --q, --k and --v: rows of q, k and v of each token, "
                 "interleaved (-: stdin)")
      ->type_name("FILE");
  app.add_flag(
      "--follow", flags.follow,
      "with --stream: regular files grow, and Ctrl-C ends the stream instead of their end");
  app.add_option(
         "--epoch", flags.epoch_tokens,
         "with --stream: tokens of an epoch, a multiple of all segments (default: the service's "
         "maximum)")
      ->type_name("N")
      ->check(From1To(int64_t{1} << 40));
}

void AddEncodeFlags(CLI::App& app, EncodeCommand& command) {
  app.add_option("--model", command.model, "name of the model, as printed by models")
      ->type_name("NAME")
      ->required();
  AddFile(app, "--tiles", command.tiles, ".npy [tiles, tile_dim]; needed without --slide")
      ->check(NotEmpty("expected a path"));
  AddFile(
      app, "--coords", command.coords,
      ".npy [tiles, 2], x and y of each tile in the model's pixels (only models with positions)");
  AddSlideFlags(app, command.slide);
  AddFile(
      app, "--out", command.out,
      ".npy to write: [slides, dim], with several layers [slides, layers, dim]; with --pool none a "
      "row for each tile and class token; needed without --plan")
      ->check(NotEmpty("expected a path"));
  Choice(app, "--pool", command.pool, "class|mean|none",
         "vector of each slide: the class token's, or the mean of its tiles (default: class if the "
         "model has a class token)");
  app.add_option("--layers", command.layers,
                 "layers of the result: all, last, or numbers in the order of the result (default: "
                 "last)")
      ->type_name("all|last|N,...")
      ->check(NotEmpty("must be all, last or numbers"));
  Choice(app, "--final-norm", command.final_norm, "apply|skip",
         "norm behind the model's last layer (default: apply if only the last layer is requested)");
  Choice(app, "--compute", command.compute, "float32|bfloat16", "type of products and attention")
      ->capture_default_str();
  app.add_option("--sequence-lengths", command.sequence_lengths,
                 "tiles of each slide (default: one slide of all tiles)")
      ->type_name("N,...")
      ->delimiter(',');
  AddFile(
      app, "--attention-map", command.attention_map,
      ".npy to write: [rows], share of each tile and class token in its class token's attention");
  app.add_option("--attention-map-layer", command.attention_map_layer,
                 "layer of the map, from 1 (default: the last)")
      ->type_name("N");
  app.add_flag("--attention-map-heads", command.attention_map_heads,
               "a column of the map for each head (default: their mean)");
  CLI::Option* const plan =
      app.add_flag("--plan", command.plan, "print the job's plan and costs, and send no tiles");
  app.add_option("--workers", command.workers,
                 "workers of the plan (default: all that have the model)")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->needs(plan);
  AddCallFlags(app, command.call);
  AddReferenceFlags(app, command.reference);
}

}  // namespace hilbert_ring::cli

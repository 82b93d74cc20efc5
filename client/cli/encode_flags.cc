#include "client/cli/encode_flags.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/job_run.h"
#include "client/cli/slide_files.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::cli {
namespace {

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

absl::StatusOr<std::vector<int64_t>> StatesOf(const std::string& layers,
                                              const EncoderConfig& config) {
  std::vector<int64_t> states;
  if (layers == "last") return std::vector<int64_t>{config.layers};
  if (layers == "all") {
    for (int64_t state = 0; state <= config.layers; ++state) states.push_back(state);
    return states;
  }
  for (const auto number : absl::StrSplit(layers, ',')) {
    if (!absl::SimpleAtoi(number, &states.emplace_back())) {
      return absl::InvalidArgumentError(
          absl::StrCat("--layers: ", layers, ", must be all, last or numbers like 1,5,12"));
    }
    if (states.back() < 0 || states.back() > config.layers) {
      return absl::OutOfRangeError(absl::StrCat(
          "--layers: ", states.back(), " is no state of the model, must be 0 to ", config.layers));
    }
  }
  return states;
}

Pooling PoolingOf(const EncodeCommand& command, const EncoderConfig& config) {
  if (command.pool == "class") return Pooling::kClass;
  if (command.pool == "mean") return Pooling::kMean;
  if (command.pool == "none" || config.norm_eps == 0) return Pooling::kNone;
  return config.class_token ? Pooling::kClass : Pooling::kMean;
}

}  // namespace

void AddEncodeFlags(CLI::App& app, EncodeCommand& command) {
  const CLI::Validator path(
      [](const std::string& text) { return text.empty() ? "is empty, expected a path" : ""; }, "");
  const auto file = [&app](const char* flag, std::string& value, const char* help) {
    return app.add_option(flag, value, help)->type_name("FILE");
  };
  app.add_option("--model", command.model, "name of the model, as printed by models")
      ->type_name("NAME")
      ->required();
  file("--tiles", command.tiles, ".npy [tiles, tile_dim]; needed without --slide")->check(path);
  file("--coords", command.coords,
       ".npy [tiles, 2], x and y of each tile in the model's pixels (only models with positions)");
  AddSlideFlags(app, command.slide);
  file(
      "--out", command.out,
      ".npy to write: [slides, dim], with several layers [slides, layers, dim]; with --pool none a "
      "row for each tile and class token; needed without --plan")
      ->check(path);
  Choice(app, "--pool", command.pool, "class|mean|none",
         "vector of each slide: the class token's, or the mean of its tiles (default: class if the "
         "model has a class token)");
  const CLI::Validator given(
      [](const std::string& text) {
        return text.empty() ? "is empty, must be all, last or numbers" : "";
      },
      "");
  app.add_option("--layers", command.layers,
                 "layers of the result: all, last, or numbers in the order of the result (default: "
                 "last)")
      ->type_name("all|last|N,...")
      ->check(given);
  Choice(app, "--final-norm", command.final_norm, "apply|skip",
         "norm behind the model's last layer (default: apply if only the last layer is requested)");
  Choice(app, "--compute", command.compute, "float32|bfloat16", "type of products and attention")
      ->capture_default_str();
  app.add_option("--sequence-lengths", command.sequence_lengths,
                 "tiles of each slide (default: one slide of all tiles)")
      ->type_name("N,...")
      ->delimiter(',');
  file("--attention-map", command.attention_map,
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

absl::StatusOr<EncoderOutputs> OutputsOf(const EncodeCommand& command,
                                         const EncoderConfig& config) {
  EncoderOutputs outputs;
  ASSIGN_OR_RETURN(outputs.states, StatesOf(command.layers, config));
  outputs.pooling = PoolingOf(command, config);
  const bool last_alone = std::ranges::all_of(
      outputs.states, [&config](int64_t state) { return state == config.layers; });
  const bool apply = command.final_norm.empty() ? last_alone : command.final_norm == "apply";
  outputs.final_norm = apply ? FinalNorm::kApplied : FinalNorm::kSkipped;
  if (!command.attention_map.empty()) {
    outputs.attention_map = {
        .layer = command.attention_map_layer.value_or(config.layers),
        .columns = command.attention_map_heads ? MapColumns::kHeads : MapColumns::kMeanOfHeads};
  } else if (command.attention_map_layer || command.attention_map_heads) {
    return absl::InvalidArgumentError(
        "--attention-map-layer and --attention-map-heads go with --attention-map FILE");
  }
  RETURN_IF_ERROR(CheckOutputs(config, outputs));
  return outputs;
}

}  // namespace hilbert_ring::cli

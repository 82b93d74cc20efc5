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

// One of "a|b|c", which is what --help shows.
CLI::Option* Choice(CLI::App& app, const char* flag, std::string& value, const char* choices,
                    const char* help) {
  const std::vector<std::string> known = absl::StrSplit(choices, '|');
  const CLI::Validator check(
      [known, choices](const std::string& text) {
        const bool found = std::ranges::find(known, text) != known.end();
        return found ? "" : absl::StrCat(text, ", expected ", choices);
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
          absl::StrCat("--layers: ", layers, ", expected all, last or numbers as 1,5,12"));
    }
    if (states.back() < 0 || states.back() > config.layers) {
      return absl::OutOfRangeError(absl::StrCat(
          "--layers: ", states.back(), " is none of the model's, must be 0 to ", config.layers));
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
  app.add_option("--model", command.model, "its name, as models prints it")
      ->type_name("NAME")
      ->required();
  file("--tiles", command.tiles, ".npy: [tiles, tile_dim]; needed without --slide")->check(path);
  file("--coords", command.coords,
       ".npy: [tiles, 2], x and y of each tile in the model's pixels; of models with positions");
  AddSlideFlags(app, command.slide);
  file(
      "--out", command.out,
      ".npy to write: [slides, dim], with several layers [slides, layers, dim]; with --pool none a "
      "row for each tile and class token; needed but with --plan")
      ->check(path);
  Choice(app, "--pool", command.pool, "class|mean|none",
         "one vector for each slide: the class token's, or the mean of its tiles; not given: class "
         "where the model has one");
  const CLI::Validator given(
      [](const std::string& text) {
        return text.empty() ? "is empty, expected all, last or numbers" : "";
      },
      "");
  app.add_option("--layers", command.layers,
                 "layers of the result: all, last, or numbers in the order of the result; default: "
                 "last")
      ->type_name("all|last|N,...")
      ->check(given);
  Choice(app, "--final-norm", command.final_norm, "apply|skip",
         "the norm behind the model's last layer; not given: applied where the last layer alone is "
         "wanted");
  Choice(app, "--compute", command.compute, "float32|bfloat16", "type of products and attention")
      ->capture_default_str();
  app.add_option("--sequence-lengths", command.sequence_lengths,
                 "tiles of each slide, where there are several; not given: all are of one")
      ->type_name("N,...")
      ->delimiter(',');
  file("--attention-map", command.attention_map,
       ".npy to write: [rows], what each tile and class token gets of its class token's attention");
  app.add_option("--attention-map-layer", command.attention_map_layer,
                 "of the map, from 1; not given: the last")
      ->type_name("N");
  app.add_flag("--attention-map-heads", command.attention_map_heads,
               "the map has a column for each head");
  CLI::Option* const plan = app.add_flag(
      "--plan", command.plan, "print what the job would take on the workers, and send no tiles");
  app.add_option("--workers", command.workers, "of the plan; not given: as many as have the model")
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

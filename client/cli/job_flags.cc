#include "client/cli/job_flags.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/flags.h"
#include "engine/base/return_if_error.h"
#include "engine/plan/choose_order.h"
#include "engine/spec/nearest_name.h"
#include "wire/flag_values.h"

namespace hilbert_ring::cli {
namespace {

// A path may not be UTF-8; JobSource::coords has its bytes.
std::string Dump(const nlohmann::json& fields) {
  return fields.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Returns nothing if it is not a text. A line of attend-many may have that; the spec's reader
// rejects it.
std::optional<std::string> CurveOf(const nlohmann::json& ordering) {
  if (!ordering.is_object() || !ordering.contains("curve")) return std::nullopt;
  if (!ordering["curve"].is_string()) return std::nullopt;
  return ordering["curve"].get<std::string>();
}

// Reads "LEFT,RIGHT", each a whole number or "none". Returns nothing for another text.
std::optional<nlohmann::json> WindowOf(const std::string& text) {
  const std::vector<std::string> sides = absl::StrSplit(text, ',');
  if (sides.size() != 2) return std::nullopt;
  auto window = nlohmann::json::array();
  for (std::string side : sides) {
    int64_t bound = 0;
    if (side == "none") {
      window.push_back(nullptr);
    } else if (wire::WrongWholeNumber(side).empty() && absl::SimpleAtoi(side, &bound)) {
      window.push_back(bound);
    } else {
      return std::nullopt;
    }
  }
  return window;
}

std::string WrongWindow(const std::string& text) {
  if (WindowOf(text)) return "";
  return absl::StrCat(text,
                      ", must be LEFT,RIGHT, each a whole number or none; an ordering has "
                      "--ordering-window");
}

class FieldFlags {
 public:
  FieldFlags(CLI::App& app, nlohmann::json& object) : app_(app), object_(object) {}

  // type: shown by --help; "a|b" lists the only values. field: with '/' between an object and its
  // field; empty: the flag's name with '_' for '-'.
  template <typename T>
  CLI::Option* Add(const std::string& flag, const char* type, const char* help,
                   std::string field = "") {
    if (field.empty()) field = FieldOf(flag);
    const nlohmann::json::json_pointer place("/" + field);
    const auto set = [&object = object_, place](const T& value) { object[place] = value; };
    return app_.add_option_function<T>(flag, set, help)->type_name(type)->group(kGroup);
  }

  template <typename T = int64_t>
  void AddList(const std::string& flag, const char* type, const char* help,
               const std::string& field = "") {
    Add<std::vector<T>>(flag, type, help, field)->delimiter(',');
  }

  void AddWindow(const char* help) {
    const auto set = [&object = object_](const std::string& text) {
      object["window"] = *WindowOf(text);
    };
    app_.add_option_function<std::string>("--window", set, help)
        ->type_name("LEFT,RIGHT")
        ->check(CLI::Validator(WrongWindow, ""))
        ->group(kGroup);
  }

  void AddSwitch(const std::string& flag, const char* help) {
    const auto set = [&object = object_, field = FieldOf(flag)](int64_t count) {
      object[field] = count > 0;  // --no-flag counts down
    };
    app_.add_flag_function(absl::StrCat(flag, ",!--no-", flag.substr(2)), set, help)->group(kGroup);
  }

 private:
  static constexpr char kGroup[] = "Fields of the spec";

  static std::string FieldOf(const std::string& flag) {
    std::string field = flag.substr(2);
    std::ranges::replace(field, '-', '_');
    return field;
  }

  CLI::App& app_;
  nlohmann::json& object_;
};

// Replaces "auto" by the job's best curve, or by no ordering.
absl::Status ChooseCurve(const GlobalOptions& global, client::JobSource& source,
                         nlohmann::json& fields) {
  if (source.spec == "-") {
    return absl::InvalidArgumentError(
        "--curve auto reads the spec twice: give a file or flags instead of -");
  }
  nlohmann::json& ordering = fields["ordering"];
  ordering["curve"] = "hilbert";
  source.fields = Dump(fields);
  ASSIGN_OR_RETURN(const client::Job job,
                   client::ReadJob(source, client::CoordinatesUse::kOptional));
  ASSIGN_OR_RETURN(const OrderChoice choice, ChooseOrder(job.spec));
  const std::string name = !choice.curve                     ? "none"
                           : *choice.curve == Curve::kMorton ? "morton"
                                                             : "hilbert";
  PrintNotes(global, {absl::StrCat("curve auto: ", name, ", since ", choice.why)});
  if (choice.curve) {
    ordering["curve"] = name;
  } else {
    ordering = nullptr;
    source.coords.clear();
  }
  source.fields = Dump(fields);
  return absl::OkStatus();
}

void AddSpecFile(CLI::App& app, JobFlags& job) {
  AddFile(app, "--spec", job.spec,
          "job spec as JSON (-: stdin); flags replace its fields, or suffice alone");
}

void AddFields(CLI::App& app, JobFlags& job) {
  FieldFlags spec(app, job.fields);
  spec.AddList("--segments", "N", "segment lengths in slots, one a branch: 2048,16384");
  spec.AddList("--dilations", "N", "dilation rates, one a branch: 1,8");
  spec.Add<std::string>("--mixing", "head_groups|lse",
                        "mixing of the branches (default: head_groups)");
  spec.AddSwitch("--causal", "queries see only keys of their own and earlier positions");
  spec.Add<double>("--scale", "X", "factor of the scores (default: 1 / sqrt(head_dim))");
  spec.Add<std::string>("--tail", "mask|zero",
                        "keys of a short segment: masked, or zero (default: mask)");
  spec.AddSwitch("--average-groups", "with head_groups: outputs divided by the number of branches");
  spec.AddList("--sequence-lengths", "N", "queries of each packed sequence: 100,200");
  spec.AddList("--key-sequence-lengths", "N",
               "keys of each packed sequence: 100,200 (default: as many as queries)");
  spec.Add<std::string>(
      "--align", "end|start",
      "position of query i of a sequence of n queries and m keys: i + m - n, or i (default: end)");
  spec.AddWindow(
      "tokens before and after its own that a query sees: 1023,0; none: no bound (default: "
      "none,none)");
  spec.Add<double>("--softcap", "X", "cap c of a score s: c * tanh(s / c) (default: no cap)");
  spec.AddList<double>(
      "--alibi-slopes", "X",
      "slope of each head, which a score loses for each token of distance, or unit of "
      "--bias-coords: 0.5,0.25 (default: no bias)",
      "alibi/slopes");
  spec.AddList<double>("--sinks", "X",
                       "logit of each head that takes part in its softmax: 1.5,-2 (default: no "
                       "sinks)");

  FieldFlags ordering(app, job.fields["ordering"]);
  ordering.Add<std::string>(
      "--curve,--ordering", "hilbert|morton|auto|none",
      "curve of the ordering; none: no ordering; auto: the curve that suits the "
      "plan and the grid, which is printed",
      "curve");
  ordering.Add<std::string>("--scope", "qkv|kv",
                            "tensors that the ordering permutes (default: qkv)");
  ordering.Add<int64_t>("--ordering-window", "N",
                        "tokens of the ordering's window (default: no window)", "window");
  ordering.AddList("--grid", "N", "grid of the ordering: rows,cols or planes,rows,cols");

  for (const auto& [flag, help] :
       {std::pair("--tokens", "number of queries (default: from q)"),
        std::pair("--key-tokens", "number of keys (default: from k and v, or as many as queries)"),
        std::pair("--heads", "number of query heads (default: from q)"),
        std::pair("--kv-heads", "number of key and value heads (default: from k and v)"),
        std::pair("--head-dim", "numbers of a query or key row a head (default: from q and k)"),
        std::pair("--value-dim", "numbers of a value row a head (default: from v)")}) {
    spec.Add<int64_t>(flag, "N", help);
  }
  spec.Add<std::string>("--dtype", "float32|bfloat16|float16",
                        "type of q, k and v (default: from their files, unless 16-bit integers)");
}

}  // namespace

void AddJobFlags(CLI::App& app, JobFlags& job, Tensors tensors) {
  AddSpecFile(app, job);
  const bool required = tensors == Tensors::kRequired;
  AddFile(app, "--q", job.q, ".npy [tokens, heads, head_dim]")->required(required);
  AddFile(app, "--k", job.k, ".npy [key_tokens, kv_heads, head_dim]")->required(required);
  AddFile(app, "--v", job.v, ".npy [key_tokens, kv_heads, value_dim]")->required(required);
  AddFile(app, "--coords", job.coords,
          ".npy [key_tokens, 2 or 3], integers (x, y) or (x, y, z): column, row and plane "
          "(default: the "
          "spec's coords_file)");
  AddFile(app, "--bias-coords", job.bias_coords,
          ".npy [key_tokens, 2 or 3], float32 coordinates whose distance the biases of "
          "--alibi-slopes measure; NaN: no bias to and from that position");
  AddFields(app, job);
}

void AddSpecFlags(CLI::App& app, JobFlags& job) {
  AddSpecFile(app, job);
  AddFields(app, job);
}

absl::StatusOr<client::JobSource> SourceOf(const GlobalOptions& global, const JobFlags& flags) {
  nlohmann::json fields = flags.fields;
  if (flags.spec.empty() && !fields.contains("segments")) {
    return absl::InvalidArgumentError(
        "segments is required: give --segments and --dilations, or a --spec that has them");
  }
  nlohmann::json& ordering = fields["ordering"];
  const std::optional<std::string> curve = CurveOf(ordering);
  const std::vector<std::string> known = {"hilbert", "morton", "auto", "none"};
  if (curve && std::ranges::find(known, *curve) == known.end()) {
    return absl::InvalidArgumentError(absl::StrCat("--curve: \"", *curve,
                                                   "\", expected hilbert, morton, auto or none",
                                                   NearestNameHint(*curve, known)));
  }
  if (!flags.coords.empty() && (ordering.is_object() || ordering.is_null())) {
    ordering["coords_file"] = flags.coords;
  }
  if (ordering.is_null()) {
    fields.erase("ordering");  // no flag has set it; null would remove the spec's
  } else if (curve == "none") {
    if (ordering.size() > 1) {
      return absl::InvalidArgumentError(
          "--curve none takes the ordering away: omit --scope, --ordering-window, --grid and "
          "--coords");
    }
    ordering = nullptr;
  }
  if (!flags.bias_coords.empty()) fields["alibi"]["distance"] = "coords";
  client::JobSource source{.spec = flags.spec,
                           .fields = Dump(fields),
                           .coords = flags.coords,
                           .bias_coords = flags.bias_coords,
                           .q = flags.q,
                           .k = flags.k,
                           .v = flags.v};
  if (curve == "auto") RETURN_IF_ERROR(ChooseCurve(global, source, fields));
  return source;
}

}  // namespace hilbert_ring::cli

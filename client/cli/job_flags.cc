#include "client/cli/job_flags.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "engine/base/return_if_error.h"
#include "engine/plan/choose_order.h"
#include "engine/spec/nearest_name.h"

namespace hilbert_ring::cli {
namespace {

using Integers = std::vector<int64_t>;

// A path may hold bytes that are no UTF-8; JobSource::coords has it as it is.
std::string Dump(const nlohmann::json& fields) {
  return fields.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Nothing where it is no text, which a line of attend-many may give and the spec's reader refuses.
std::optional<std::string> CurveOf(const nlohmann::json& ordering) {
  if (!ordering.is_object() || !ordering.contains("curve")) return std::nullopt;
  if (!ordering["curve"].is_string()) return std::nullopt;
  return ordering["curve"].get<std::string>();
}

// Adds options that set members of a JSON object.
class FieldFlags {
 public:
  FieldFlags(CLI::App& app, nlohmann::json& object) : app_(app), object_(object) {}

  // type: as --help shows it, "a|b" where a and b are its only values. field: empty where it is
  // the flag's name with '_' for '-'.
  template <typename T>
  CLI::Option* Add(const std::string& flag, const char* type, const char* help,
                   std::string field = "") {
    if (field.empty()) field = FieldOf(flag);
    const auto set = [&object = object_, field](const T& value) { object[field] = value; };
    return app_.add_option_function<T>(flag, set, help)->type_name(type)->group(kGroup);
  }

  void AddList(const std::string& flag, const char* type, const char* help) {
    Add<Integers>(flag, type, help)->delimiter(',');
  }

  // --flag and --no-flag.
  void AddSwitch(const std::string& flag, const char* help) {
    const auto set = [&object = object_, field = FieldOf(flag)](int64_t count) {
      object[field] = count > 0;  // --no-flag counts down
    };
    app_.add_flag_function(absl::StrCat(flag, ",!--no-", flag.substr(2)), set, help)->group(kGroup);
  }

 private:
  static constexpr char kGroup[] = "Fields of the spec";

  // "--kv-heads": "kv_heads".
  static std::string FieldOf(const std::string& flag) {
    std::string field = flag.substr(2);
    std::ranges::replace(field, '-', '_');
    return field;
  }

  CLI::App& app_;
  nlohmann::json& object_;
};

// In place of "auto" what suits the job, or no ordering.
absl::Status ChooseCurve(const GlobalOptions& global, client::JobSource& source,
                         nlohmann::json& fields) {
  if (source.spec == "-") {
    return absl::InvalidArgumentError(
        "--curve auto reads the spec twice: give a file, or flags, and not -");
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
  app.add_option("--spec", job.spec,
                 "the job, as JSON (-: from stdin); flags replace its fields, or stand alone")
      ->type_name("FILE");
}

void AddFields(CLI::App& app, JobFlags& job) {
  FieldFlags spec(app, job.fields);
  spec.AddList("--segments", "N", "lengths, one a branch: 2048,16384");
  spec.AddList("--dilations", "N", "rates, one a branch: 1,8");
  spec.Add<std::string>("--mixing", "head_groups|lse", "of the branches");
  spec.AddSwitch("--causal", "a query sees keys of its own and earlier tokens");
  spec.Add<double>("--scale", "X", "of the scores; 1 / sqrt(head_dim) when not given");
  spec.Add<std::string>("--tail", "mask|zero", "what a segment that runs short sees");
  spec.AddSwitch("--average-groups", "head_groups: divide outputs by the number of branches");
  spec.AddList("--sequence-lengths", "N", "of packed sequences: 100,200");

  FieldFlags ordering(app, job.fields["ordering"]);
  ordering.Add<std::string>("--curve,--ordering", "hilbert|morton|auto|none",
                            "of the ordering; none: no ordering; auto: what suits the plan and the "
                            "grid, which is said",
                            "curve");
  ordering.Add<std::string>("--scope", "qkv|kv", "of the ordering");
  ordering.Add<int64_t>("--window", "N", "of the ordering, tokens");
  ordering.AddList("--grid", "N", "of the ordering: rows,cols or planes,rows,cols");

  for (const char* size : {"--tokens", "--heads", "--kv-heads", "--head-dim", "--value-dim"}) {
    spec.Add<int64_t>(size, "N", "from q, k and v when not given");
  }
  spec.Add<std::string>("--dtype", "float32|bfloat16|float16",
                        "from q, k and v when not given, but for 16-bit integers");
}

}  // namespace

void AddJobFlags(CLI::App& app, JobFlags& job, Tensors tensors) {
  const auto file = [&app](const char* flag, std::string& path, const char* help) {
    return app.add_option(flag, path, help)->type_name("FILE");
  };
  AddSpecFile(app, job);
  const bool required = tensors == Tensors::kRequired;
  file("--q", job.q, ".npy [tokens, heads, head_dim]")->required(required);
  file("--k", job.k, ".npy [tokens, kv_heads, head_dim]")->required(required);
  file("--v", job.v, ".npy [tokens, kv_heads, value_dim]")->required(required);
  file("--coords", job.coords,
       ".npy [tokens, 2 or 3], integers (x, y) or (x, y, z), that is (column, row, plane); "
       "replaces the spec's coords_file");
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
    fields.erase("ordering");  // no flag says anything of it; null would take it away
  } else if (curve == "none") {
    if (ordering.size() > 1) {
      return absl::InvalidArgumentError(
          "--curve none takes the ordering away: leave out --scope, --window, --grid and --coords");
    }
    ordering = nullptr;
  }
  client::JobSource source{.spec = flags.spec,
                           .fields = Dump(fields),
                           .coords = flags.coords,
                           .q = flags.q,
                           .k = flags.k,
                           .v = flags.v};
  if (curve == "auto") RETURN_IF_ERROR(ChooseCurve(global, source, fields));
  return source;
}

}  // namespace hilbert_ring::cli

#include "engine/spec/job_spec_json.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/nearest_name.h"
#include "engine/spec/object_reader.h"
#include "engine/spec/watched_json.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring {
namespace {

using Json = nlohmann::json;

constexpr char kWhat[] = "the job spec";

std::span<const std::string> SpecFields() {
  static const std::vector<std::string> fields = {
      "tokens",         "heads",      "kv_heads",
      "head_dim",       "value_dim",  "dtype",
      "segments",       "dilations",  "mixing",
      "causal",         "scale",      "tail",
      "average_groups", "ordering",   "sequence_lengths",
      "window",         "softcap",    "alibi",
      "sinks",          "key_tokens", "key_sequence_lengths",
      "align"};
  return fields;
}

std::span<const std::string> OrderingFields() {
  static const std::vector<std::string> fields = {"curve",  "scope",       "window",     "grid",
                                                  "coords", "coords_file", "coords_axes"};
  return fields;
}

std::span<const std::string> AlibiFields() {
  static const std::vector<std::string> fields = {"slopes", "distance", "axes"};
  return fields;
}

constexpr std::array<EnumName<DataType>, 3> kDataTypes{{{"float32", DataType::kFloat32},
                                                        {"bfloat16", DataType::kBFloat16},
                                                        {"float16", DataType::kFloat16}}};
constexpr std::array<EnumName<Mixing>, 2> kMixings{
    {{"head_groups", Mixing::kHeadGroups}, {"lse", Mixing::kLse}}};
constexpr std::array<EnumName<Tail>, 2> kTails{{{"mask", Tail::kMask}, {"zero", Tail::kZero}}};
constexpr std::array<EnumName<Curve>, 2> kCurves{
    {{"hilbert", Curve::kHilbert}, {"morton", Curve::kMorton}}};
constexpr std::array<EnumName<Align>, 2> kAligns{{{"end", Align::kEnd}, {"start", Align::kStart}}};
constexpr std::array<EnumName<OrderScope>, 2> kScopes{
    {{"qkv", OrderScope::kQkv}, {"kv", OrderScope::kKv}}};

enum class Distance { kTokens, kCoordinates };
constexpr std::array<EnumName<Distance>, 2> kDistances{
    {{"tokens", Distance::kTokens}, {"coords", Distance::kCoordinates}}};

template <typename Enum, size_t N>
const char* NameOf(const std::array<EnumName<Enum>, N>& names, Enum value) {
  for (const EnumName<Enum>& entry : names) {
    if (entry.value == value) return entry.name;
  }
  return "";
}

bool Contains(std::span<const std::string> fields, const std::string& field) {
  return std::ranges::find(fields, field) != fields.end();
}

std::string FieldHint(const std::string& field, std::span<const std::string> known) {
  if (Contains(OrderingFields(), field)) return "; it is a field of ordering";
  if (Contains(SpecFields(), field)) return "; it is a field of the job spec itself";
  return NearestNameHint(field, known);
}

// name: the object in messages; empty: the spec itself.
absl::Status CheckFields(const Json& object, const std::string& name,
                         std::span<const std::string> known) {
  for (const auto& [field, value] : object.items()) {
    if (Contains(known, field)) continue;
    return absl::InvalidArgumentError(absl::StrCat("unknown field ", Quoted(field),
                                                   name.empty() ? "" : " in ", name,
                                                   FieldHint(field, known)));
  }
  return absl::OkStatus();
}

absl::Status ReadCoords(const Json& rows, JobSpecDocument& document, int& axes) {
  constexpr char kField[] = "ordering.coords";
  if (!rows.is_array() || rows.empty()) {
    return WrongType(kField, "a list of rows, one for each token", rows);
  }
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto field = [&] { return absl::StrCat(kField, "[", row, "]"); };
    if (!rows[row].is_array()) return WrongType(field(), "a list of 2 or 3 integers", rows[row]);
    const size_t entries = rows[row].size();
    if (row == 0 && entries != 2 && entries != 3) {
      return absl::InvalidArgumentError(
          absl::StrCat(field(), " has ", entries, " entries, must have 2 or 3"));
    }
    if (row == 0) axes = static_cast<int>(entries);
    if (entries != static_cast<size_t>(axes)) {
      return absl::InvalidArgumentError(absl::StrCat(
          field(), " has ", entries, " entries, must have ", axes, ", as in the first row"));
    }
    RETURN_IF_ERROR(ReadIntegers(field(), rows[row], document.coords));
  }
  return absl::OkStatus();
}

absl::Status ReadCoordinates(ObjectReader& reader, JobSpecDocument& document, Ordering& ordering) {
  const Json* rows = reader.Find("coords");
  const Json* file = reader.Find("coords_file");
  int64_t axes = 0;
  reader.Integer("coords_axes", axes);
  RETURN_IF_ERROR(reader.status());
  if (reader.Find("coords_axes") != nullptr) {
    if (axes != 2 && axes != 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("ordering.coords_axes is ", axes, ", must be 2 or 3"));
    }
    document.coords_axes = static_cast<int>(axes);
    if (rows == nullptr && file == nullptr) {
      return absl::InvalidArgumentError(
          "ordering.coords_axes needs ordering.coords or ordering.coords_file");
    }
  }
  if (rows != nullptr && file != nullptr) {
    return absl::InvalidArgumentError(
        "ordering.coords must not be given together with ordering.coords_file");
  }
  if (file != nullptr) {
    if (!file->is_string()) return WrongType("ordering.coords_file", "a file's name", *file);
    document.coords_file = file->get<std::string>();
    if (document.coords_file->empty()) {
      return absl::InvalidArgumentError("ordering.coords_file is empty: name a file");
    }
    ordering.coordinate_axes = axes == 0 ? 2 : static_cast<int>(axes);
  }
  if (rows != nullptr) {
    RETURN_IF_ERROR(ReadCoords(*rows, document, ordering.coordinate_axes));
    if (axes != 0 && axes != ordering.coordinate_axes) {
      return absl::InvalidArgumentError(absl::StrCat("ordering.coords_axes is ", axes,
                                                     ", but the rows of ordering.coords have ",
                                                     ordering.coordinate_axes, " entries"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadOrdering(const Json& value, JobSpecDocument& document) {
  if (!value.is_object()) return WrongType("ordering", "an object or null", value);
  if (value.empty()) {
    return absl::InvalidArgumentError("ordering is empty: name a curve, or give null for none");
  }
  RETURN_IF_ERROR(CheckFields(value, "ordering", OrderingFields()));
  Ordering ordering;
  ObjectReader reader(value, "ordering");
  reader.Choice("curve", kCurves, ordering.curve);
  reader.Choice("scope", kScopes, ordering.scope);
  reader.Integer("window", ordering.window);
  reader.Integers("grid", ordering.grid);
  if (reader.Find("grid") != nullptr && ordering.grid.empty()) {
    reader.Fail("ordering.grid has 0 entries, must have 2 or 3");
  }
  RETURN_IF_ERROR(ReadCoordinates(reader, document, ordering));
  document.spec.ordering = std::move(ordering);
  return absl::OkStatus();
}

absl::Status ReadWindow(const Json& value, JobSpec& spec) {
  if (!value.is_array() || value.size() != 2) {
    return WrongType("window", "[left, right], each an integer or null", value);
  }
  Window& window = spec.window.emplace();
  for (size_t i = 0; i < 2; ++i) {
    if (value[i].is_null()) continue;
    RETURN_IF_ERROR(ReadInteger(absl::StrCat("window[", i, "]"), value[i],
                                (i == 0 ? window.left : window.right).emplace()));
  }
  return absl::OkStatus();
}

absl::Status ReadAlibi(const Json& value, JobSpecDocument& document) {
  JobSpec& spec = document.spec;
  if (!value.is_object()) return WrongType("alibi", "an object or null", value);
  RETURN_IF_ERROR(CheckFields(value, "alibi", AlibiFields()));
  ObjectReader reader(value, "alibi");
  reader.Require({"slopes"});
  Alibi& alibi = spec.alibi.emplace();
  reader.Numbers("slopes", alibi.slopes);
  Distance distance = Distance::kTokens;
  reader.Choice("distance", kDistances, distance);
  std::optional<int64_t> axes;
  reader.Integer("axes", axes);
  if (reader.status().ok() && axes && (*axes < 2 || *axes > 3)) {
    reader.Fail(absl::StrCat("alibi.axes is ", *axes, ", must be 2 or 3"));
  } else if (axes && distance == Distance::kTokens) {
    reader.Fail(absl::StrCat("alibi.axes is ", *axes, ", must be absent with distance tokens"));
  }
  if (distance == Distance::kCoordinates) {
    alibi.coordinate_axes = static_cast<int>(axes.value_or(2));
    document.bias_axes = axes ? std::optional(alibi.coordinate_axes) : std::nullopt;
  }
  return reader.status();
}

enum class Shape { kRequired, kOptional };

absl::StatusOr<JobSpecDocument> ReadDocument(const Json& json, Shape shape) {
  if (!json.is_object()) return WrongType(kWhat, "an object", json);
  RETURN_IF_ERROR(CheckFields(json, "", SpecFields()));
  JobSpecDocument document;
  JobSpec& spec = document.spec;
  SpecShape& given = document.given;
  ObjectReader reader(json, "");
  if (shape == Shape::kRequired) reader.Require({"tokens", "heads", "head_dim"});
  reader.Require({"segments", "dilations"});
  reader.Integer("tokens", given.tokens);
  reader.Integer("key_tokens", given.key_tokens);
  reader.Integer("heads", given.heads);
  reader.Integer("kv_heads", given.kv_heads);
  reader.Integer("head_dim", given.head_dim);
  reader.Integer("value_dim", given.value_dim);
  if (reader.Find("dtype") != nullptr) {
    reader.Choice("dtype", kDataTypes, given.dtype.emplace());
  }
  FillIn(given, spec);
  reader.Choice("mixing", kMixings, spec.mixing);
  reader.Boolean("causal", spec.causal);
  reader.Number("scale", spec.scale);
  reader.Choice("tail", kTails, spec.tail);
  reader.Boolean("average_groups", spec.average_groups);
  reader.Integers("sequence_lengths", spec.sequence_lengths);
  reader.Integers("key_sequence_lengths", spec.key_sequence_lengths);
  reader.Choice("align", kAligns, spec.align);
  reader.Branches(spec.branches);
  if (const Json* ordering = reader.Find("ordering")) {
    RETURN_IF_ERROR(ReadOrdering(*ordering, document));
  }
  if (const Json* window = reader.Find("window")) RETURN_IF_ERROR(ReadWindow(*window, spec));
  reader.Number("softcap", spec.softcap);
  if (const Json* alibi = reader.Find("alibi")) RETURN_IF_ERROR(ReadAlibi(*alibi, document));
  reader.Numbers("sinks", spec.sinks);
  RETURN_IF_ERROR(reader.status());
  return document;
}

absl::Status PatchOrdering(Json& base, Json& patch) {
  const auto change = patch.find("ordering");
  if (change == patch.end() || !change->is_object() || change->empty()) return absl::OkStatus();
  const auto found = base.find("ordering");
  if (found == base.end() || found->is_null()) {
    if (change->contains("curve")) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("ordering.", change->begin().key(),
                     " is given, but the job has no ordering: name its curve too"));
  }
  const std::initializer_list<const char*> places = {"window", "grid", "coords", "coords_file"};
  const bool moves = std::any_of(places.begin(), places.end(),
                                 [&](const char* name) { return change->contains(name); });
  if (!found->is_object() || !moves) return absl::OkStatus();
  for (const char* name : places) found->erase(name);
  found->erase("coords_axes");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JobSpecDocument> ParseJobSpec(std::string_view json) {
  ASSIGN_OR_RETURN(const Json parsed, ParseWatchedJson(json, kWhat));
  return ReadDocument(parsed, Shape::kRequired);
}

absl::StatusOr<JobSpecDocument> ParsePartialJobSpec(std::string_view json, std::string_view patch) {
  ASSIGN_OR_RETURN(Json base, ParseWatchedJson(json, kWhat));
  ASSIGN_OR_RETURN(Json changes, ParseWatchedJson(patch, kWhat));
  if (base.is_object() && changes.is_object()) {
    RETURN_IF_ERROR(PatchOrdering(base, changes));
    base.merge_patch(changes);
  }
  return ReadDocument(base, Shape::kOptional);
}

void FillIn(const SpecShape& shape, JobSpec& spec) {
  spec.tokens = shape.tokens.value_or(0);
  spec.key_tokens.reset();
  if (shape.key_tokens && *shape.key_tokens != spec.tokens) spec.key_tokens = shape.key_tokens;
  spec.heads = shape.heads.value_or(0);
  spec.kv_heads = shape.kv_heads.value_or(spec.heads);
  spec.head_dim = shape.head_dim.value_or(0);
  spec.value_dim = shape.value_dim.value_or(spec.head_dim);
  spec.dtype = shape.dtype.value_or(DataType::kFloat32);
}

std::string FormatJobSpec(const JobSpec& spec) {
  nlohmann::ordered_json json;
  json["tokens"] = spec.tokens;
  json["key_tokens"] = nullptr;
  if (spec.key_tokens) json["key_tokens"] = *spec.key_tokens;
  json["heads"] = spec.heads;
  json["kv_heads"] = spec.kv_heads;
  json["head_dim"] = spec.head_dim;
  json["value_dim"] = spec.value_dim;
  json["dtype"] = NameOf(kDataTypes, spec.dtype);
  json["segments"] = nlohmann::ordered_json::array();
  json["dilations"] = nlohmann::ordered_json::array();
  for (const Branch& branch : spec.branches) {
    json["segments"].push_back(branch.segment);
    json["dilations"].push_back(branch.dilation);
  }
  json["mixing"] = NameOf(kMixings, spec.mixing);
  json["causal"] = spec.causal;
  json["scale"] = nullptr;
  if (spec.scale.has_value()) json["scale"] = *spec.scale;
  json["tail"] = NameOf(kTails, spec.tail);
  json["average_groups"] = spec.average_groups;
  json["ordering"] = nullptr;
  if (spec.ordering.has_value()) {
    nlohmann::ordered_json ordering;
    ordering["curve"] = NameOf(kCurves, spec.ordering->curve);
    ordering["scope"] = NameOf(kScopes, spec.ordering->scope);
    ordering["window"] = spec.ordering->window;
    if (!spec.ordering->grid.empty()) ordering["grid"] = spec.ordering->grid;
    if (spec.ordering->coordinate_axes != 0) {
      ordering["coords_file"] = "coords.npy";
      ordering["coords_axes"] = spec.ordering->coordinate_axes;
    }
    json["ordering"] = std::move(ordering);
  }
  json["sequence_lengths"] = nullptr;
  if (!spec.sequence_lengths.empty()) json["sequence_lengths"] = spec.sequence_lengths;
  json["key_sequence_lengths"] = nullptr;
  if (!spec.key_sequence_lengths.empty()) json["key_sequence_lengths"] = spec.key_sequence_lengths;
  json["align"] = NameOf(kAligns, spec.align);
  const auto side = [](const std::optional<int64_t>& bound) {
    return bound ? nlohmann::ordered_json(*bound) : nullptr;
  };
  json["window"] = nullptr;
  if (spec.window) json["window"] = {side(spec.window->left), side(spec.window->right)};
  json["softcap"] = nullptr;
  if (spec.softcap) json["softcap"] = *spec.softcap;
  json["alibi"] = nullptr;
  if (spec.alibi) {
    json["alibi"]["slopes"] = spec.alibi->slopes;
    const int axes = spec.alibi->coordinate_axes;
    json["alibi"]["distance"] =
        NameOf(kDistances, axes == 0 ? Distance::kTokens : Distance::kCoordinates);
    if (axes != 0) json["alibi"]["axes"] = axes;
  }
  json["sinks"] = nullptr;
  if (!spec.sinks.empty()) json["sinks"] = spec.sinks;
  return json.dump();
}

std::string_view DataTypeName(DataType dtype) { return NameOf(kDataTypes, dtype); }

absl::StatusOr<DataType> ParseDataType(std::string_view name) {
  for (const EnumName<DataType>& entry : kDataTypes) {
    if (name == entry.name) return entry.value;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "dtype is ", Quoted(name), ", must be \"float32\" or \"bfloat16\" or \"float16\""));
}

}  // namespace hilbert_ring

#include "engine/spec/job_spec_json.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/spec/watched_json.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring {
namespace {

using Json = nlohmann::json;

constexpr char kWhat[] = "the job spec";

template <typename Enum>
struct Name {
  const char* name;
  Enum value;
};

constexpr std::array<Name<DataType>, 3> kDataTypes{{{"float32", DataType::kFloat32},
                                                    {"bfloat16", DataType::kBFloat16},
                                                    {"float16", DataType::kFloat16}}};
constexpr std::array<Name<Mixing>, 2> kMixings{
    {{"head_groups", Mixing::kHeadGroups}, {"lse", Mixing::kLse}}};
constexpr std::array<Name<Tail>, 2> kTails{{{"mask", Tail::kMask}, {"zero", Tail::kZero}}};
constexpr std::array<Name<Curve>, 2> kCurves{
    {{"hilbert", Curve::kHilbert}, {"morton", Curve::kMorton}}};
constexpr std::array<Name<OrderScope>, 2> kScopes{
    {{"qkv", OrderScope::kQkv}, {"kv", OrderScope::kKv}}};

template <typename Enum, size_t N>
const char* NameOf(const std::array<Name<Enum>, N>& names, Enum value) {
  for (const Name<Enum>& entry : names) {
    if (entry.value == value) return entry.name;
  }
  return "";
}

// The value as a message shows it. Never recurses into what was sent.
std::string Shown(const Json& value) {
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  if (value.is_structured()) return absl::StrCat("an ", value.type_name());
  return value.dump();
}

absl::Status WrongType(const std::string& field, const char* wanted, const Json& value) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", Shown(value), ", but must be ", wanted));
}

absl::Status ReadInteger(const std::string& field, const Json& value, int64_t& into) {
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!value.is_number()) return WrongType(field, "an integer", value);
  if (value.is_number_float() || (value.is_number_unsigned() && value.get<uint64_t>() > kMax)) {
    return WrongType(field, "an integer of 64 bits, written without fraction and exponent", value);
  }
  into = value.get<int64_t>();
  return absl::OkStatus();
}

absl::Status ReadIntegers(const std::string& field, const Json& value, std::vector<int64_t>& into) {
  if (!value.is_array()) return WrongType(field, "a list of integers", value);
  into.reserve(into.size() + value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    int64_t& entry = into.emplace_back();
    // The entry's name is put together only for the message.
    if (ReadInteger(field, value[i], entry).ok()) continue;
    return ReadInteger(absl::StrCat(field, "[", i, "]"), value[i], entry);
  }
  return absl::OkStatus();
}

// Reads the fields of one object and keeps the first error. A field that is absent or null leaves
// its place as it is.
class ObjectReader {
 public:
  // prefix: what stands before a field's name in messages ("ordering.", say).
  ObjectReader(const Json& object, std::string prefix, std::initializer_list<const char*> fields)
      : object_(object), prefix_(std::move(prefix)) {
    const std::set<std::string> known(fields.begin(), fields.end());
    for (auto entry = object.begin(); entry != object.end(); ++entry) {
      if (known.contains(entry.key())) continue;
      status_ = absl::InvalidArgumentError(absl::StrCat("unknown field ", Quoted(entry.key()),
                                                        prefix_.empty() ? "" : " in ",
                                                        prefix_.substr(0, prefix_.size() - 1)));
      return;
    }
  }

  const absl::Status& status() const { return status_; }
  std::string FieldName(const char* name) const { return absl::StrCat(prefix_, name); }

  // The value of a field, or null when it is absent, null or after an error.
  const Json* Find(const char* name) const {
    if (!status_.ok()) return nullptr;
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  void Require(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (status_.ok() && Find(name) == nullptr)
        Fail(absl::StrCat(FieldName(name), " is required"));
    }
  }

  void Integer(const char* name, int64_t& into) {
    if (const Json* value = Find(name)) status_ = ReadInteger(FieldName(name), *value, into);
  }

  void Integer(const char* name, std::optional<int64_t>& into) {
    if (Find(name) != nullptr) Integer(name, into.emplace());
  }

  void Integers(const char* name, std::vector<int64_t>& into) {
    if (const Json* value = Find(name)) status_ = ReadIntegers(FieldName(name), *value, into);
  }

  void Boolean(const char* name, bool& into) {
    const Json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_boolean()) {
      status_ = WrongType(FieldName(name), "true or false", *value);
      return;
    }
    into = value->get<bool>();
  }

  void Number(const char* name, std::optional<double>& into) {
    const Json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_number()) {
      status_ = WrongType(FieldName(name), "a number or null", *value);
      return;
    }
    into = value->get<double>();
  }

  template <typename Enum, size_t N>
  void Choice(const char* name, const std::array<Name<Enum>, N>& names, Enum& into) {
    const Json* value = Find(name);
    if (value == nullptr) return;
    std::string wanted;
    for (const Name<Enum>& entry : names) {
      if (value->is_string() && value->get_ref<const std::string&>() == entry.name) {
        into = entry.value;
        return;
      }
      absl::StrAppend(&wanted, wanted.empty() ? "\"" : " or \"", entry.name, "\"");
    }
    status_ = WrongType(FieldName(name), wanted.c_str(), *value);
  }

  void Fail(std::string message) { status_ = absl::InvalidArgumentError(std::move(message)); }

 private:
  const Json& object_;
  const std::string prefix_;
  absl::Status status_;
};

// Inline coordinates: rows of two or three integers, all of one length.
absl::Status ReadCoords(const Json& rows, JobSpecDocument& document, int& axes) {
  constexpr char kField[] = "ordering.coords";
  if (!rows.is_array() || rows.empty()) {
    return WrongType(kField, "a list of rows, one for each token", rows);
  }
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto field = [&] { return absl::StrCat(kField, "[", row, "]"); };
    if (!rows[row].is_array()) return WrongType(field(), "a list of 2 or 3 integers", rows[row]);
    const size_t entries = rows[row].size();
    if (row == 0 && (entries == 2 || entries == 3)) axes = static_cast<int>(entries);
    if (entries != static_cast<size_t>(axes)) {
      return absl::InvalidArgumentError(
          absl::StrCat(field(), " has ", entries, " entries, but must have ",
                       row == 0 ? "2 or 3" : absl::StrCat(axes, " as the first row")));
    }
    if (absl::Status s = ReadIntegers(field(), rows[row], document.coords); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status ReadCoordinates(ObjectReader& reader, JobSpecDocument& document, Ordering& ordering) {
  const Json* rows = reader.Find("coords");
  const Json* file = reader.Find("coords_file");
  int64_t axes = 0;
  reader.Integer("coords_axes", axes);
  if (!reader.status().ok()) return reader.status();
  if (reader.Find("coords_axes") != nullptr) {
    if (axes != 2 && axes != 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("ordering.coords_axes is ", axes, ", but must be 2 or 3"));
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
    ordering.coordinate_axes = axes == 0 ? 2 : static_cast<int>(axes);
  }
  if (rows != nullptr) {
    if (absl::Status s = ReadCoords(*rows, document, ordering.coordinate_axes); !s.ok()) return s;
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
  Ordering ordering;
  ObjectReader reader(value, "ordering.",
                      {"curve", "scope", "window", "grid", "coords", "coords_file", "coords_axes"});
  reader.Choice("curve", kCurves, ordering.curve);
  reader.Choice("scope", kScopes, ordering.scope);
  reader.Integer("window", ordering.window);
  reader.Integers("grid", ordering.grid);
  if (reader.Find("grid") != nullptr && ordering.grid.empty()) {
    reader.Fail("ordering.grid has 0 entries, but must have 2 or 3");
  }
  if (absl::Status s = ReadCoordinates(reader, document, ordering); !s.ok()) return s;
  document.spec.ordering = std::move(ordering);
  return absl::OkStatus();
}

absl::Status ReadBranches(ObjectReader& reader, JobSpec& spec) {
  std::vector<int64_t> segments;
  std::vector<int64_t> dilations;
  reader.Integers("segments", segments);
  reader.Integers("dilations", dilations);
  if (!reader.status().ok()) return reader.status();
  if (segments.size() != dilations.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "segments has ", segments.size(), " entries, but dilations has ", dilations.size()));
  }
  for (size_t b = 0; b < segments.size(); ++b) {
    spec.branches.push_back({segments[b], dilations[b]});
  }
  return absl::OkStatus();
}

enum class Shape { kRequired, kOptional };

absl::StatusOr<JobSpecDocument> ReadDocument(const Json& json, Shape shape) {
  if (!json.is_object()) return WrongType("the job spec", "an object", json);
  JobSpecDocument document;
  JobSpec& spec = document.spec;
  SpecShape& given = document.given;
  ObjectReader reader(
      json, "",
      {"tokens", "heads", "kv_heads", "head_dim", "value_dim", "dtype", "segments", "dilations",
       "mixing", "causal", "scale", "tail", "average_groups", "ordering", "sequence_lengths"});
  if (shape == Shape::kRequired) reader.Require({"tokens", "heads", "head_dim"});
  reader.Require({"segments", "dilations"});
  reader.Integer("tokens", given.tokens);
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
  if (absl::Status s = ReadBranches(reader, spec); !s.ok()) return s;
  if (const Json* ordering = reader.Find("ordering")) {
    if (absl::Status s = ReadOrdering(*ordering, document); !s.ok()) return s;
  }
  if (!reader.status().ok()) return reader.status();
  return document;
}

// As ParsePartialJobSpec says it of orderings.
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
  const absl::StatusOr<Json> parsed = ParseWatchedJson(json, kWhat);
  if (!parsed.ok()) return parsed.status();
  return ReadDocument(*parsed, Shape::kRequired);
}

absl::StatusOr<JobSpecDocument> ParsePartialJobSpec(std::string_view json, std::string_view patch) {
  absl::StatusOr<Json> base = ParseWatchedJson(json, kWhat);
  if (!base.ok()) return base.status();
  absl::StatusOr<Json> changes = ParseWatchedJson(patch, kWhat);
  if (!changes.ok()) return changes.status();
  if (base->is_object() && changes->is_object()) {
    if (absl::Status s = PatchOrdering(*base, *changes); !s.ok()) return s;
    base->merge_patch(*changes);
  }
  return ReadDocument(*base, Shape::kOptional);
}

void FillIn(const SpecShape& shape, JobSpec& spec) {
  spec.tokens = shape.tokens.value_or(0);
  spec.heads = shape.heads.value_or(0);
  spec.kv_heads = shape.kv_heads.value_or(spec.heads);
  spec.head_dim = shape.head_dim.value_or(0);
  spec.value_dim = shape.value_dim.value_or(spec.head_dim);
  spec.dtype = shape.dtype.value_or(DataType::kFloat32);
}

std::string FormatJobSpec(const JobSpec& spec) {
  nlohmann::ordered_json json;
  json["tokens"] = spec.tokens;
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
  return json.dump();
}

std::string_view DataTypeName(DataType dtype) { return NameOf(kDataTypes, dtype); }

absl::StatusOr<DataType> ParseDataType(std::string_view name) {
  for (const Name<DataType>& entry : kDataTypes) {
    if (name == entry.name) return entry.value;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "dtype is ", Quoted(name), ", but must be \"float32\" or \"bfloat16\" or \"float16\""));
}

}  // namespace hilbert_ring

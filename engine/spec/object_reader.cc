#include "engine/spec/object_reader.h"

#include <limits>

#include "engine/spec/watched_json.h"

namespace hilbert_ring {
namespace {

using Json = nlohmann::json;

// The value in a message. Does not recurse into the caller's data.
std::string Shown(const Json& value) {
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  if (value.is_structured()) return absl::StrCat("an ", value.type_name());
  return value.dump();
}

}  // namespace

absl::Status WrongType(const std::string& field, const char* wanted, const Json& value) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", Shown(value), ", must be ", wanted));
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
    if (ReadInteger(field, value[i], entry).ok()) continue;
    return ReadInteger(absl::StrCat(field, "[", i, "]"), value[i], entry);
  }
  return absl::OkStatus();
}

const Json* ObjectReader::Find(const char* name) const {
  if (!status_.ok()) return nullptr;
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void ObjectReader::Require(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!status_.ok()) return;
    if (Find(name) == nullptr) Fail(absl::StrCat(FieldName(name), " is required"));
  }
}

void ObjectReader::Integer(const char* name, int64_t& into) {
  if (const Json* value = Find(name)) status_ = ReadInteger(FieldName(name), *value, into);
}

void ObjectReader::Integer(const char* name, std::optional<int64_t>& into) {
  if (Find(name) != nullptr) Integer(name, into.emplace());
}

void ObjectReader::Integers(const char* name, std::vector<int64_t>& into) {
  if (const Json* value = Find(name)) status_ = ReadIntegers(FieldName(name), *value, into);
}

void ObjectReader::Boolean(const char* name, bool& into) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) {
    status_ = WrongType(FieldName(name), "true or false", *value);
    return;
  }
  into = value->get<bool>();
}

void ObjectReader::Number(const char* name, std::optional<double>& into) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_number()) {
    status_ = WrongType(FieldName(name), "a number or null", *value);
    return;
  }
  into = value->get<double>();
}

void ObjectReader::Numbers(const char* name, std::vector<double>& into) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_array()) {
    status_ = WrongType(FieldName(name), "a list of numbers", *value);
    return;
  }
  if (value->empty())
    return Fail(absl::StrCat(FieldName(name), " has 0 entries, must have one for each head"));
  for (size_t i = 0; i < value->size(); ++i) {
    const Json& entry = (*value)[i];
    if (!entry.is_number()) {
      status_ = WrongType(absl::StrCat(FieldName(name), "[", i, "]"), "a number", entry);
      return;
    }
    into.push_back(entry.get<double>());
  }
}

void ObjectReader::Branches(std::vector<Branch>& into) {
  std::vector<int64_t> segments, dilations;
  Integers("segments", segments);
  Integers("dilations", dilations);
  if (!status_.ok()) return;
  if (segments.size() != dilations.size()) {
    return Fail(absl::StrCat("segments has ", segments.size(), " entries, but dilations has ",
                             dilations.size()));
  }
  for (size_t b = 0; b < segments.size(); ++b) into.push_back({segments[b], dilations[b]});
}

}  // namespace hilbert_ring

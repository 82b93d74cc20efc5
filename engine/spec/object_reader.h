// Reads the fields of a JSON object from an unauthenticated caller.
//
//   ObjectReader reader(json, "ordering");
//   reader.Choice("curve", kCurves, ordering.curve);
//   reader.Integers("grid", ordering.grid);
//   RETURN_IF_ERROR(reader.status());   // the first error
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/spec/job_spec.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring {

template <typename Enum>
struct EnumName {
  const char* name;
  Enum value;
};

// INVALID_ARGUMENT: "FIELD is VALUE, must be WANTED".
absl::Status WrongType(const std::string& field, const char* wanted, const nlohmann::json& value);

// Reads a 64-bit integer. Errors: INVALID_ARGUMENT, also below.
absl::Status ReadInteger(const std::string& field, const nlohmann::json& value, int64_t& into);

// Appends a list of 64-bit integers.
absl::Status ReadIntegers(const std::string& field, const nlohmann::json& value,
                          std::vector<int64_t>& into);

// Keeps the first error. An absent or null field leaves its variable unchanged.
class ObjectReader {
 public:
  // name: prefix of fields in messages; may be empty. The object outlives the reader.
  ObjectReader(const nlohmann::json& object, const std::string& name)
      : object_(object), prefix_(name.empty() ? "" : name + ".") {}

  const absl::Status& status() const { return status_; }

  // The value of a field; null if it is absent or null, or after an error.
  const nlohmann::json* Find(const char* name) const;

  void Require(std::initializer_list<const char*> names);
  void Integer(const char* name, int64_t& into);
  void Integer(const char* name, std::optional<int64_t>& into);
  void Integers(const char* name, std::vector<int64_t>& into);
  void Boolean(const char* name, bool& into);
  void Number(const char* name, std::optional<double>& into);

  // Reads a list that is not empty.
  void Numbers(const char* name, std::vector<double>& into);

  // Reads "segments" and "dilations", whose lengths must agree.
  void Branches(std::vector<Branch>& into);

  template <typename Enum, size_t N>
  void Choice(const char* name, const std::array<EnumName<Enum>, N>& names, Enum& into) {
    const nlohmann::json* value = Find(name);
    if (value == nullptr) return;
    std::string wanted;
    for (const EnumName<Enum>& entry : names) {
      if (value->is_string() && value->get_ref<const std::string&>() == entry.name) {
        into = entry.value;
        return;
      }
      absl::StrAppend(&wanted, wanted.empty() ? "\"" : " or \"", entry.name, "\"");
    }
    status_ = WrongType(FieldName(name), wanted.c_str(), *value);
  }

  void Fail(const std::string& message) { status_ = absl::InvalidArgumentError(message); }

 private:
  std::string FieldName(const char* name) const { return prefix_ + name; }

  const nlohmann::json& object_;
  const std::string prefix_;
  absl::Status status_;
};

}  // namespace hilbert_ring

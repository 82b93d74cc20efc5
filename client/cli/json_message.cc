#include "client/cli/json_message.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "google/protobuf/descriptor.h"
#include "wire/control_characters.h"

namespace hilbert_ring::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

Json FieldsAsJson(const Message& message);

template <typename... Index>
Json ValueAsJson(const Message& message, const FieldDescriptor* field, Index... index) {
  const Reflection& get = *message.GetReflection();
  constexpr bool kRepeated = sizeof...(Index) > 0;
  const auto read = [&](auto single, auto repeated) {
    if constexpr (kRepeated) {
      return (get.*repeated)(message, field, index...);
    } else {
      return (get.*single)(message, field);
    }
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return read(&Reflection::GetInt32, &Reflection::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return read(&Reflection::GetInt64, &Reflection::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return read(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return read(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return JsonNumber(read(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return JsonNumber(read(&Reflection::GetFloat, &Reflection::GetRepeatedFloat));
    case FieldDescriptor::CPPTYPE_BOOL:
      return read(&Reflection::GetBool, &Reflection::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_ENUM:
      return read(&Reflection::GetEnum, &Reflection::GetRepeatedEnum)->name();
    case FieldDescriptor::CPPTYPE_STRING:
      return read(&Reflection::GetString, &Reflection::GetRepeatedString);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if constexpr (kRepeated) {
        return FieldsAsJson(get.GetRepeatedMessage(message, field, index...));
      } else {
        return FieldsAsJson(get.GetMessage(message, field));
      }
  }
  return nullptr;
}

Json FieldsAsJson(const Message& message) {
  const Reflection& get = *message.GetReflection();
  Json json = Json::object();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (field->is_repeated()) {
      Json& list = json[field->name()] = Json::array();
      for (int at = 0; at < get.FieldSize(message, field); ++at) {
        list.push_back(ValueAsJson(message, field, at));
      }
    } else if (!field->has_presence() || get.HasField(message, field)) {
      json[field->name()] = ValueAsJson(message, field);
    }
  }
  return json;
}

}  // namespace

Json JsonNumber(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

std::string MessageAsJson(const Message& message) {
  // A message of the service may quote bytes that are not UTF-8.
  return wire::PrintableJson(
      FieldsAsJson(message).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string PlainName(const std::string& enumerator, const std::string& other) {
  if (enumerator.empty()) return other;
  return absl::AsciiStrToLower(enumerator.substr(enumerator.find('_') + 1));
}

}  // namespace hilbert_ring::cli

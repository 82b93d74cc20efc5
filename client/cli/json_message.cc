#include "client/cli/json_message.h"

#include "google/protobuf/util/json_util.h"

namespace hilbert_ring::cli {

std::string MessageAsJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  // Fails for messages of unknown type alone, and ours are compiled in.
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  while (!json.empty() && json.back() == '\n') json.pop_back();
  return json;
}

}  // namespace hilbert_ring::cli

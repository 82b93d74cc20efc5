#include "client/cli/job_flags.h"

#include "nlohmann/json.hpp"

namespace hilbert_ring::cli {
namespace {

using Json = nlohmann::json;

template <typename T>
void Put(Json& json, const char* name, const std::optional<T>& value) {
  if (value) json[name] = *value;
}

template <typename List>
void PutIfAny(Json& json, const char* name, const List& value) {
  if (!value.empty()) json[name] = value;
}

Json OrderingOf(const JobFlags& flags) {
  Json ordering = Json::object();
  PutIfAny(ordering, "curve", flags.curve);
  PutIfAny(ordering, "scope", flags.scope);
  Put(ordering, "window", flags.window);
  PutIfAny(ordering, "grid", flags.grid);
  PutIfAny(ordering, "coords_file", flags.coords);
  return ordering;
}

}  // namespace

client::JobSource SourceOf(const JobFlags& flags) {
  Json fields = Json::object();
  Put(fields, "tokens", flags.tokens);
  Put(fields, "heads", flags.heads);
  Put(fields, "kv_heads", flags.kv_heads);
  Put(fields, "head_dim", flags.head_dim);
  Put(fields, "value_dim", flags.value_dim);
  PutIfAny(fields, "dtype", flags.dtype);
  PutIfAny(fields, "segments", flags.segments);
  PutIfAny(fields, "dilations", flags.dilations);
  PutIfAny(fields, "mixing", flags.mixing);
  Put(fields, "causal", flags.causal);
  Put(fields, "scale", flags.scale);
  PutIfAny(fields, "tail", flags.tail);
  Put(fields, "average_groups", flags.average_groups);
  PutIfAny(fields, "sequence_lengths", flags.sequence_lengths);
  if (flags.curve == "none") {
    fields["ordering"] = nullptr;
  } else {
    PutIfAny(fields, "ordering", OrderingOf(flags));
  }
  return {.spec = flags.spec,
          .fields = fields.dump(),
          .coords = flags.coords,
          .q = flags.q,
          .k = flags.k,
          .v = flags.v};
}

}  // namespace hilbert_ring::cli

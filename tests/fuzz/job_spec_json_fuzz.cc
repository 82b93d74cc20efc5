// A job spec's JSON gives an error that names the wrong field, or a spec that survives printing and
// parsing.
#include <string_view>
#include <utility>

#include "engine/spec/job_spec_json.h"
#include "tests/fuzz/target.h"
#include "wire/codec.h"

namespace hilbert_ring::fuzz {
namespace {

constexpr size_t kMaxMessage = 1024;  // bytes of an error

void CheckError(const absl::Status& status) {
  Require(absl::IsInvalidArgument(status), "a parse error is INVALID_ARGUMENT");
  Require(!status.message().empty() && status.message().size() <= kMaxMessage,
          "a parse error has a message of bounded length");
}

}  // namespace

void JobSpecJson(Bytes input) {
  const std::string_view json(reinterpret_cast<const char*>(input.data()), input.size());
  for (const auto& [base, patch] : {std::pair(json, json), {"{}", json}, {json, "{}"}}) {
    const auto patched = ParsePartialJobSpec(base, patch);
    if (!patched.ok()) CheckError(patched.status());
  }
  const auto document = ParseJobSpec(json);
  if (!document.ok()) return CheckError(document.status());
  const auto partial = ParsePartialJobSpec(json, "{}");
  Require(partial.ok() && partial->spec == document->spec, "a whole spec is a partial one too");
  const std::string printed = FormatJobSpec(document->spec);
  const auto again = ParseJobSpec(printed);
  Require(again.ok(), "a parsed spec prints as JSON that parses");
  Require(again->spec == document->spec, "a spec that is printed and parsed is the same");
  const absl::Status valid = Validate(document->spec);
  Require(valid.ok() || absl::IsInvalidArgument(valid) || absl::IsOutOfRange(valid),
          "a spec is valid, INVALID_ARGUMENT or OUT_OF_RANGE");
  if (!valid.ok()) return;
  const auto decoded = wire::DecodeJobSpec(wire::EncodeJobSpec(document->spec));
  Require(decoded.ok() && *decoded == document->spec, "a valid spec survives the wire");
}

}  // namespace hilbert_ring::fuzz

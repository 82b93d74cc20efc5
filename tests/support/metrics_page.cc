#include "tests/support/metrics_page.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace hilbert_ring::testing {

absl::StatusOr<double> ReadSeries(absl::string_view page, absl::string_view series) {
  const bool labelled = absl::StrContains(series, '{');
  bool found = false;
  double sum = 0;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, series)) continue;
    if (!absl::StartsWith(rest, " ") && (labelled || !absl::StartsWith(rest, "{"))) continue;
    double value = 0;
    if (!absl::SimpleAtod(rest.substr(rest.rfind(' ') + 1), &value)) {
      return absl::InternalError(absl::StrCat("the page has the line '", line, "'"));
    }
    found = true;
    sum += value;
  }
  if (!found) return absl::NotFoundError(absl::StrCat("the page has no ", series));
  return sum;
}

}  // namespace hilbert_ring::testing

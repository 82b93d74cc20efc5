#!/usr/bin/env bash
# Runs a fuzz target for some seconds from its seeds: short_run.sh BUILD TARGET SECONDS.
# Exits with 77 if the target was not built.
set -euo pipefail

build="$1" target="$2" seconds="$3"
program="$build/tests/fuzz/fuzz_$target"
seeds="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/corpus/$target"

if [[ ! -x "$program" ]]; then
  echo "skipped: $program is not there: ./dev fuzz builds it, with clang and libclang-rt-14-dev"
  exit 77
fi
found="$(mktemp -d)"
trap 'rm -rf "$found"' EXIT
# libFuzzer keeps no input here; it prints a failing one in base64.
"$program" "$found" "$seeds" -max_total_time="$seconds" -entropic=0 -timeout=30 -rss_limit_mb=4096 \
  -print_final_stats=1 -artifact_prefix="$found/" 2>&1 | tail -n 60

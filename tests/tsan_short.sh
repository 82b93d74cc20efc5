#!/usr/bin/env bash
# Runs a test that was built with the thread sanitizer: tsan_short.sh PROGRAM.
# Exits with 77 if it was not built.
set -euo pipefail

if [[ ! -x "$1" ]]; then
  echo "skipped: $1 is not there: ./dev test all builds it, by the preset tsan_engine"
  exit 77
fi
TSAN_OPTIONS=second_deadlock_stack=1:halt_on_error=1 exec "$1"

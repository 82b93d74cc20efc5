#!/usr/bin/env bash
# nvcc_alone.sh DEPENDENCIES
#
# Checks that hopper_alone.cu compiles with nvcc alone: it includes only the kernels' headers, CUDA's, and those of the
# compiler and the C library. DEPENDENCIES is the output of nvcc -MD.
set -euo pipefail
files="$(tr -d '\\' <"$1" | tr -s ' \n' '\n')"
grep -q 'engine/device/cuda/kernels/attention_warpgroup\.cuh$' <<<"$files" ||
  { echo "no kernel is named in $1"; exit 1; }
# Headers of the compilers and the C library lie in these folders, or in /usr/include itself.
foreign="$(grep '/' <<<"$files" |
  grep -vE 'bench/hopper_alone\.cu$|engine/device/cuda/kernels/|alone/hopper_alone\.o' |
  grep -vE '/cuda(-[0-9.]+)?/|/lib/gcc/|^/usr/include/(c\+\+|[a-z0-9_]+-linux-gnu|linux|asm[a-z-]*)/|^/usr/include/[^/]+$' ||
  true)"
[[ -z "$foreign" ]] || { printf 'hopper_alone.cu includes what nvcc does not have:\n%s\n' "$foreign"; exit 1; }

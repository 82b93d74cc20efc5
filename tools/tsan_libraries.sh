#!/usr/bin/env bash
# tsan_libraries.sh FOLDER
#
# Builds gRPC, Protobuf and Abseil as shared libraries with the thread sanitizer into FOLDER, from the source packages
# of the installed versions. LD_LIBRARY_PATH puts them before the installed libraries, whose
# synchronisation the sanitizer cannot see. The build takes about 40 minutes on 2 shared cores. It runs again only if
# the installed versions change.
set -euo pipefail

[[ $# -eq 1 ]] || { echo "usage: tsan_libraries.sh FOLDER" >&2; exit 2; }
folder="$(realpath -m "$1")"
work="$folder/work"
jobs="${HILBERT_RING_JOBS:-$(nproc)}"

mapfile -t sources < <(dpkg-query -W -f '${source:Package}=${source:Version}\n' \
  libabsl-dev libprotobuf-dev libgrpc++-dev | sort -u)
made="${sources[*]}"
if [[ -f "$folder/made" && "$(<"$folder/made")" == "$made" ]]; then exit 0; fi
rm -rf "$folder"
mkdir -p "$work/lists/partial"

# apt uses these lists alone, because the system's lists seldom name source packages.
release="$(. /etc/os-release && echo "$VERSION_CODENAME")"
cat >"$work/sources.list" <<LIST
deb-src http://deb.debian.org/debian $release main
deb-src http://deb.debian.org/debian $release-updates main
deb-src http://deb.debian.org/debian-security $release-security main
LIST
apt=(apt-get -qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=-
  -o "Dir::State::lists=$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
  -o APT::Sandbox::User=)
"${apt[@]}" update
(cd "$work" && "${apt[@]}" source "${sources[@]}")

# library NAME TARGET [CMAKE ARGS...]: builds shared libraries into FOLDER.
library() {
  local name="$1" target="$2" flags="-fsanitize=thread -O1 -g1 -fno-omit-frame-pointer -w"
  local build="$work/build/$name"
  cmake -G Ninja -S "$(echo "$work/$name"-[0-9]*/)" -B "$build" -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" \
    -DCMAKE_SHARED_LINKER_FLAGS=-fsanitize=thread -DBUILD_SHARED_LIBS=ON \
    -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache "${@:3}"
  cmake --build "$build" -j "$jobs" --target "$target"
  find "$build" -name 'lib*.so.*' -exec cp -a {} "$folder/" \;
}

library abseil all -DCMAKE_CXX_STANDARD=17
library protobuf libprotobuf -Dprotobuf_BUILD_TESTS=OFF -Dprotobuf_BUILD_PROTOC_BINARIES=OFF
# protoc is not built. CMake requires its library, so /dev/null stands in for it.
library grpc grpc++ -DgRPC_{ABSL,CARES,PROTOBUF,RE2,SSL,ZLIB}_PROVIDER=package \
  -DgRPC_BUILD_CODEGEN=OFF -DProtobuf_PROTOC_LIBRARY=/dev/null
rm -rf "$work"
printf '%s\n' "$made" >"$folder/made"

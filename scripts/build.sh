#!/usr/bin/env bash
# build.sh PRESET [target…]: configures and builds; the CUDA code too when the preset is cpu and nvcc is there.
# Prints the build folder's name as its last line of standard output.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: build.sh PRESET [target…]}
shift
if [ "$preset" = cpu ] && [ "${HAYFORK_NO_CUDA:-}" = "" ] && command -v "${CUDACXX:-nvcc}" >/dev/null; then
  preset=cuda
fi
cmake --preset "$preset" >&2
cmake --build --preset "$preset" ${*:+--target "$@"} >&2
if [ "$preset" = cpu ]; then echo build; else echo "build-$preset"; fi

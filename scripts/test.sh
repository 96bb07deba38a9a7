#!/usr/bin/env bash
# Second command on a fresh machine: builds the tests and runs them. CPU tests always; CUDA tests when a GPU answers.
# Arguments go to ctest (for example: -R store, -LE slow).
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_packages.sh
build=$(scripts/build.sh cpu | tail -n 1)
exclude=(-LE cuda)
if [ "$build" = build-cuda ] && command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
  exclude=()
else
  echo "test.sh: no GPU here: tests labelled cuda are left out" >&2
fi
exec ctest --test-dir "$build" --output-on-failure -j "$(nproc)" "${exclude[@]}" "$@"

#!/usr/bin/env bash
# First command on a fresh machine: installs what is missing, builds, evaluates the demo checkpoints on the CPU and tells
# where the heatmaps are. Arguments go to `hayfork demo`.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_packages.sh
build=$(scripts/build.sh cpu hayfork | tail -n 1)
exec "$build/bin/hayfork" demo "$@"

#!/usr/bin/env bash
# Writes docs/cli.md from the program's own help texts. Argument: the program (build/bin/hayfork).
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p docs
"${1:-build/bin/hayfork}" help --markdown > docs/cli.md

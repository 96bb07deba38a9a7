#!/usr/bin/env bash
# Shows the gate of docs/ci at work: it fails on a planted regression (a checkpoint that sees 128 tokens) and passes on a
# rerun without it. Needs a build; takes some seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
status=0
scripts/ci_gate.sh --model demo/swa --out "$out/planted" || status=$?
[ $status = 1 ] || { echo "planted regression: want status 1, got $status" >&2; exit 1; }
grep -q '<failure' "$out/planted/gate.xml"
status=0
scripts/ci_gate.sh --model demo/full --out "$out/rerun" || status=$?
[ $status = 0 ] || { echo "rerun: want status 0, got $status" >&2; exit 1; }
echo "the gate fails on a planted regression and passes on a rerun"

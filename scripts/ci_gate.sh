#!/usr/bin/env bash
# Runs a small needle grid, puts it beside the committed baseline and judges it: what docs/ci/hayfork-gate.yml calls.
#   scripts/ci_gate.sh [--model DIR] [--out DIR] [--baseline FILE] [--policy FILE] [--make-baseline]
# The status is the gate's: 0 passed, 1 a regression, 3 inconclusive. --make-baseline writes FILE from this run instead
# (it needs sqlite3, to take the machine's name out).
set -euo pipefail
cd "$(dirname "$0")/.."
model=demo/full out=gate baseline=docs/ci/baseline.db policy=docs/ci/gate.yaml make=no
while [ $# -gt 0 ]; do
  case $1 in
    --model) model=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --baseline) baseline=$2; shift 2 ;;
    --policy) policy=$2; shift 2 ;;
    --make-baseline) make=yes; shift ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
  esac
done
hayfork=${HAYFORK:-build/bin/hayfork}
mkdir -p "$out"
rm -f "$out"/runs.db*
log=()
[ $make = no ] || log=(--no-log-samples)
"$hayfork" run --model "$model" --tasks niah --lengths 512,1k --depths 0-100+50 --samples 11 --dtype f32 \
  --db "$out/runs.db" --name candidate --quiet "${log[@]}" > "$out/results.txt"
if [ $make = yes ]; then
  "$hayfork" baseline set main candidate --db "$out/runs.db"
  "$hayfork" describe candidate --name baseline --db "$out/runs.db"
  # What is committed says what was measured, not on whose machine.
  sqlite3 "$out/runs.db" "update hosts set hostname = null, cpu = null, os = null; update models set path = null;
    update runs set pid = null, boot_id = null, cli_json = '[]'; update baselines set set_by = null;
    update run_attempts set pid = null, boot_id = null, cli_json = '[]'"
  "$hayfork" db vacuum --db "$out/runs.db"
  cp "$out/runs.db" "$baseline"
  exit 0
fi
"$hayfork" import hayfork "$baseline" --db "$out/runs.db" > /dev/null
exec "$hayfork" gate candidate --baseline @main --policy "$policy" --db "$out/runs.db" --junit "$out/gate.xml" \
  --md "$out/gate.md"

#!/usr/bin/env bash
# The results database at scale: writes 1,000 runs × 1,000 samples and four runs of 100,000, then times the verbs on it.
#   cmake -B build -DHAYFORK_BENCH=ON && ninja -C build store_bench hayfork && scripts/scale_check.sh [build] [FILE.db]
# Prints seconds, processor seconds (which a busy machine does not change much) and peak memory of each, best of three. Needs python3 for the timing.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
db=${2:-$(mktemp -d)/scale.db}
[ -e "$db" ] || { find "$build" -name store_bench -type f -perm -u+x -exec {} "$db" 1000 1000 100000 \; ; }
ls -l "$db" | awk '{printf "%.0f MB\n", $5 / 1e6}'
python3 - "$build/bin/hayfork" "$db" <<'PY'
import json, os, re, subprocess, sys, tempfile, time, urllib.request
binary, db = sys.argv[1:]

def measure(name, *arguments):
    best, work, peak = 1e9, 1e9, 0
    for _ in range(3):
        start = time.monotonic()
        process = subprocess.Popen([binary, *arguments, "--db", db], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        best, peak = min(best, time.monotonic() - start), max(peak, usage.ru_maxrss)
        work = min(work, usage.ru_utime + usage.ru_stime)
        assert status == 0, (name, status)
    print(f"{name:44} {best:6.2f} s  {work:6.2f} s of processors  {peak / 1024:5.0f} MB")

def measure_serve(*paths):
    """Pages as a browser asks for them: the first answer of a fresh server, and its memory after all of them."""
    process = subprocess.Popen([binary, "serve", "--port", "0", "--db", db], stderr=subprocess.PIPE, text=True)
    url = re.search(r"http://\S+/", process.stderr.readline()).group(0)
    for path in paths:
        start = time.monotonic()
        body = urllib.request.urlopen(url + path).read()
        print(f"serve /{path:37} {time.monotonic() - start:6.2f} s  {len(body) / 1e3:6.0f} kB")
    process.terminate()
    _, _, usage = os.wait4(process.pid, 0)
    print(f"serve, all of these {'':24} {usage.ru_utime + usage.ru_stime:6.2f} s of processors  {usage.ru_maxrss / 1024:5.0f} MB")

measure("list runs (1,004)", "list", "runs")
measure("list models", "list", "models")
measure("export runs -o csv", "export", "runs", "-o", "csv")
measure("show run", "show", "@last")
measure("compare 2 × 100,000, 0/1 scores", "compare", "big-a", "big-b")
measure("compare by length", "compare", "big-a", "big-b", "--by", "length")
measure("compare 2 × 100,000, all scores different", "compare", "graded-a", "graded-b")
measure("table of 50 models", "table", "--tasks", "made", "--best", "off")
measure("export samples -o jsonl (100,000)", "export", "samples", "big-a", "-o", "jsonl")
out = tempfile.mkdtemp()
rows = json.loads(subprocess.run([binary, "list", "runs", "-o", "json", "--db", db], capture_output=True, check=True).stdout)["runs"]
fifty = ",".join([row["run"] for row in rows if row["planned"] == 1000][:50])
measure("report of 50 runs, a folder", "report", "-o", out + "/site", "--runs", fifty)
measure("report of 50 runs, one file", "report", "-o", out + "/one.html", "--runs", fifty)
measure("report of the newest 50 (4 of 100,000)", "report", "-o", out + "/newest")
measure_serve("", "niah.html", "lengths.html", "architectures.html")
PY

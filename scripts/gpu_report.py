#!/usr/bin/env python3
"""Builds Hayfork on a GPU machine, runs the tests labelled cuda, compute-sanitizer where it is there, and the benchmarks, with a
peer's in between, and writes the GPU part of docs/performance.md.

  scripts/gpu_report.py [--bin DIR | --libs DIR] [--peer FILE.py] [--docs docs/performance.md] [--quick]
                        [--parts tests,models,choices,ops,sanitizer] [--limit SECONDS]

--bin: a folder that holds the test and benchmark programs already, a build folder of the preset cuda (with -DHAYFORK_BENCH=ON) for
example; else they are built by scripts/gpu_kernels.sh, which looks for libraries and headers in --libs first. --peer: a program that prints one JSON object a
figure, called as: FILE.py --what prefill,decode --lengths N --batch B. Every figure is of this run; what fails is said in the
document, not left out. --limit: nothing more is begun when this much time has passed.
"""
import argparse
import collections
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- gpu_report: begin -->", "<!-- gpu_report: end -->"
MODEL = "random:qwen3-8b:0"
CASES = [  # model, prompt, decode steps, batch, peer's too
    (MODEL, 2048, 128, 1, True),
    (MODEL, 2048, 64, 8, True),
    (MODEL, 8192, 64, 1, True),
    (MODEL, 32768, 48, 1, True),
    (MODEL, 131072, 32, 1, True),
    ("random:qwen3-8b+orthros128:0", 131072, 32, 1, False),
    ("random:qwen3-8b+swa128:0", 131072, 32, 1, False),
]
QUICK = [c for c in CASES if c[1] <= 8192]
# What compute-sanitizer runs (docs/testing.md), our kernels alone: races are reported inside cuBLASLt's own.
SANITIZED = [("ops_cuda_test", "*bf16*-*Prefill*"), ("attention_cuda_test", "*bf16*"), ("moe_cuda_test", "*Routing*:*APass*")]


def run(command, limit, env=None):
    """Exit status, standard output, and both outputs' ends for a message."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=env, cwd=ROOT)
        return done.returncode, done.stdout, (done.stdout[-600:] + done.stderr[-600:]).strip()
    except subprocess.TimeoutExpired:
        return 124, "", f"no end after {limit} s"
    except FileNotFoundError as error:
        return 127, "", str(error)


def program(bin_dir, name):
    """Where a program is: CMake puts the area before its name and tests into a folder."""
    for folder in (bin_dir, os.path.join(bin_dir, "tests"), os.path.join(bin_dir, "bin")):
        for spelled in (name, "engine_" + name):
            path = os.path.join(folder, spelled)
            if os.access(path, os.X_OK):
                return os.path.abspath(path)
    return os.path.join(bin_dir, name)


def json_lines(text):
    lines = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                pass
    return lines


def device():
    _, out, _ = run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], 30)
    return out.strip().splitlines()[0] if out.strip() else "no GPU"


def commit():
    if os.environ.get("HAYFORK_COMMIT"):
        return os.environ["HAYFORK_COMMIT"]
    status, out, _ = run(["git", "rev-parse", "--short", "HEAD"], 10)
    return out.strip() if status == 0 else "unknown"


def tests(bin_dir, env):
    rows = []
    for part in ("devices", "ops", "attention", "moe", "recurrent", "random", "golden"):
        name = f"{part}_cuda_test"
        status, out, tail = run([program(bin_dir, name)], 300, env)
        passed = re.search(r"\[  PASSED  \] (\d+)", out)
        skipped = re.search(r"\[  SKIPPED \] (\d+) test", out)
        failed = re.search(r"\[  FAILED  \] (\d+) test", out)
        if not passed:
            rows.append((name, f"did not run: {tail.splitlines()[-1] if tail else status}"))
            continue
        rows.append((name, f"{passed[1]} passed, {failed[1] if failed else 0} failed, {skipped[1] if skipped else 0} skipped"))
    return rows


def sanitizer(bin_dir, env):
    tool = shutil.which("compute-sanitizer")
    if not tool:
        return [("compute-sanitizer", "not on this machine")]
    rows = []
    for kind in ("memcheck", "racecheck"):
        for name, tests in SANITIZED:
            status, out, tail = run([tool, "--tool", kind, "--kernel-name", "kns=hayfork", program(bin_dir, name),
                                     f"--gtest_filter={tests}"], 180, env)
            found = re.search(r"(ERROR SUMMARY: .*|RACECHECK SUMMARY: .*)", out)
            rows.append((f"{kind} {name}", found[1] if found else f"no summary (status {status})"))
    return rows


def ops(bin_dir, env):
    status, out, tail = run([program(bin_dir, "ops_cuda_bench"), "--benchmark_min_time=0.1", "--benchmark_format=json"], 300, env)
    if status != 0:
        return [], f"ops_cuda_bench: {tail}"
    rows = []
    for b in json.loads(out)["benchmarks"]:
        extra = {k: v for k, v in b.items() if isinstance(v, float) and k not in ("real_time", "cpu_time")}
        unit = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}[b.get("time_unit", "ns")]
        rows.append((b["name"].replace("/manual_time", ""), b["real_time"] * unit, extra))
    return rows, ""


def model_row(bin_dir, env, case, peer):
    """Ours, the peer's, ours again: the machine's drift meets both."""
    model, prompt, gen, batch, with_peer = case
    ours, theirs, notes = [], collections.defaultdict(list), []
    for turn in range(2 if peer and with_peer else 1):
        command = [program(bin_dir, "model_cuda_bench"), model, str(prompt), str(gen), str(batch)]
        status, out, tail = run(command, 300, env)
        ours += [line for line in json_lines(out) if "prefill_s" in line]
        if status != 0:
            notes.append(tail.splitlines()[-1] if tail else f"status {status}")
        if turn == 0 and peer and with_peer:
            what = "prefill,decode" if prompt <= 32768 else "prefill"
            status, out, tail = run([sys.executable, peer, "--what", what, "--lengths", str(prompt), "--batch", str(batch)], 300)
            for line in json_lines(out):
                theirs[line.get("what", "?")].append(line)
            if status != 0:
                notes.append("peer: " + (tail.splitlines()[-1] if tail else f"status {status}"))
    return model, prompt, batch, ours, theirs, notes


def best(lines, key, largest=False):
    values = [line[key] for line in lines if key in line]
    return (max(values) if largest else min(values)) if values else None


def shown(value, pattern):
    return pattern.format(value) if value is not None else "–"


def gigabytes(value):
    return shown(value / 1e9 if value is not None else None, "{:.2f} GB")


def document(args, test_rows, op_rows, op_note, model_rows, choices):
    now = datetime.date.today().isoformat()
    lines = [BEGIN, f"## GPU: {device()}, {now}, commit {commit()}", "",
             f"`scripts/gpu_report.py{' --quick' if args.quick else ''}`; whole models bf16 with made-up weights, two repetitions of which the",
             "second counts, the better of two turns with the peer's between them. FLOP convention and floors: engine/floor.h (775 TFLOP/s,",
             "4.2 TB/s).", "", "| check | result |", "|---|---|"]
    lines += [f"| {name} | {result} |" for name, result in test_rows]
    if not test_rows:
        lines = lines[:-3]
    lines += ["", "| model | batch | prompt | prefill | × floor | peer's | decode | × floor | peer's | busy | memory planned / peak |",
              "|---|---|---|---|---|---|---|---|---|---|---|"]
    for model, prompt, batch, ours, theirs, notes in model_rows:
        peer_prefill, peer_decode = best(theirs["prefill"], "ms"), best(theirs["decode"], "tok_s", True)
        lines.append(
            f"| {model} | {batch} | {prompt:,} | {shown(best(ours, 'prefill_s'), '{:.3f} s')} | {shown(best(ours, 'prefill_x'), '{:.2f}')} | "
            f"{shown(peer_prefill / 1e3 if peer_prefill else None, '{:.3f} s')} | {shown(best(ours, 'decode_tok_s', True), '{:.1f} tok/s')} | "
            f"{shown(best(ours, 'decode_x'), '{:.2f}')} | {shown(peer_decode, '{:.1f} tok/s')} | {shown(best(ours, 'busy'), '{:.3f}')} | "
            f"{gigabytes(best(ours, 'planned_bytes'))} / {gigabytes(best(ours, 'peak_bytes'))} |")
    for model, prompt, batch, _, _, notes in model_rows:
        lines += [f"\n{model} at {prompt:,}, batch {batch}: {note}" for note in notes]
    lines += ["", "busy: the share of wall time in which the device worked on a pass, by its own clock around each pass."]
    for c in choices:
        lines += [f"Four endings of {c['documents']:,} documents scored by {c['model']}: {c['seconds']:.2f} s, busy {c['busy']:.3f}, "
                  f"{c['rows']:,} rows in {c['passes']} passes."]
    if op_rows:
        keys = sorted({k for _, _, extra in op_rows for k in extra})
        lines += ["", "| op | time | " + " | ".join(keys) + " |", "|---|---|" + "---|" * len(keys)]
        for name, us, extra in op_rows:
            lines.append(f"| {name} | {us:,.1f} µs | " + " | ".join(shown(extra.get(k), "{:,.3g}") for k in keys) + " |")
    if op_note:
        lines += ["", op_note]
    return "\n".join(lines + [END])


def save(args, found):
    text = document(args, **found)
    old = open(args.docs, encoding="utf-8").read() if os.path.exists(args.docs) else "# Performance\n"
    if BEGIN in old and END in old:
        old = old[:old.index(BEGIN)] + text + old[old.index(END) + len(END):]
    else:
        old = old.rstrip() + "\n\n" + text + "\n"
    with open(args.docs, "w", encoding="utf-8") as file:
        file.write(old)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin")
    parser.add_argument("--libs")
    parser.add_argument("--peer")
    parser.add_argument("--docs", default=os.path.join(ROOT, "docs", "performance.md"))
    parser.add_argument("--parts", default="tests,models,choices,ops,sanitizer")
    parser.add_argument("--limit", type=float, default=0)
    parser.add_argument("--quick", action="store_true", help="prompts of up to 8,192 tokens only")
    args = parser.parse_args()
    env = dict(os.environ, HAYFORK_SOURCE_DIR=ROOT)
    if args.libs:
        libs = os.path.abspath(args.libs)
        env.update(LIBS=libs, LD_LIBRARY_PATH=libs + ":" + env.get("LD_LIBRARY_PATH", ""))
    bin_dir = args.bin or os.path.join(ROOT, "build-gpu")
    if not args.bin:
        status, _, tail = run(["bash", "scripts/gpu_kernels.sh", bin_dir, "engine"], 600, env)
        if status != 0:
            sys.exit(f"gpu_report.py: the build failed\n{tail}")
    # The document is written after every step: a run that is cut short leaves what it has found.
    found = {"test_rows": [], "op_rows": [], "op_note": "", "model_rows": [], "choices": []}
    start = time.monotonic()

    def goes_on(part):
        return part in args.parts.split(",") and (args.limit == 0 or time.monotonic() - start < args.limit)

    if goes_on("tests"):
        found["test_rows"] = tests(bin_dir, env)
        save(args, found)
    for case in QUICK if args.quick else CASES:
        if goes_on("models"):
            found["model_rows"].append(model_row(bin_dir, env, case, args.peer))
            save(args, found)
    if goes_on("choices"):
        command = [program(bin_dir, "model_cuda_bench"), "choices", MODEL, "2000", "choices", "random:qwen3-0.6b:0", "2000"]
        found["choices"] = [line for line in json_lines(run(command, 300, env)[1]) if "documents" in line]
    if goes_on("ops"):
        found["op_rows"], found["op_note"] = ops(bin_dir, env)
    if goes_on("sanitizer"):
        found["test_rows"] += sanitizer(bin_dir, env)
    text = save(args, found)
    test_rows = found["test_rows"]
    print(text)
    if any("failed" in result and not re.search(r"\b0 failed", result) or "did not run" in result for _, result in test_rows):
        sys.exit(1)


if __name__ == "__main__":
    main()

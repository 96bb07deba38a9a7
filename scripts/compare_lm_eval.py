#!/usr/bin/env python3
"""Speed and scores beside lm-evaluation-harness's Hugging Face backend: one checkpoint, the same documents and cores.

    scripts/compare_lm_eval.py --model smollm2 --data data [--hayfork build/bin/hayfork] [--threads 2] [--repeats 2]
                               [--jobs hellaswag:0:200,arc_easy:5:200] [--batch-size 1]

A job is task:examples:documents. The contestants take turns, and the best of the repeats is printed: seconds from the
first request to the last answer (loading is on neither clock), float32 both. "computed" is the number of token rows our
engine computed over the tokens of all requests as the harness sends them. Accuracies must agree; the largest difference
of a log-probability is printed. Needs lm_eval, torch, transformers.
"""
import argparse
import glob
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def run_hayfork(args, job, folder):
    task, shots, limit = job
    db = os.path.join(folder, f"{task}.db")
    if os.path.exists(db):
        os.remove(db)
    command = [args.hayfork, "run", "--model", args.model, "--data", args.data, "--tasks", task, "--num-fewshot", shots,
               "--limit", limit, "--device", "cpu", "--dtype", "f32", "--threads", str(args.threads), "--db", db]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    store = sqlite3.connect(db)
    seconds = store.execute("SELECT wall_s FROM run_tasks").fetchone()[0]
    rows = store.execute("SELECT sum(rows_base) FROM samples").fetchone()[0]
    sums = {}
    query = "SELECT doc_id, choice, logprob FROM sample_choices JOIN samples ON samples.id = sample"
    for doc, choice, value in store.execute(query):
        sums[int(doc), choice] = value
    acc = store.execute("SELECT value FROM metrics WHERE metric = 'acc' AND slice = ''").fetchone()[0]
    return {"seconds": seconds, "rows": rows, "sums": sums, "acc": acc}


def run_harness(args, job, folder):
    task, shots, limit = job
    command = [sys.executable, str(HERE / "lm_eval_results.py"), "--model", args.model, "--data", args.data, "--tasks", task,
               "--num-fewshot", shots, "--limit", limit, "--threads", str(args.threads), "--batch-size", args.batch_size,
               "--out", folder]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(args.threads)})
    if done.returncode != 0:
        sys.exit(done.stderr[-4000:])
    seconds = float(re.search(r"^seconds ([0-9.]+)", done.stdout, re.M).group(1))
    newest = max(glob.glob(os.path.join(folder, "**", f"samples_{task}_*.jsonl"), recursive=True), key=os.path.getmtime)
    sums, hits, n = {}, 0, 0
    with open(newest, encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            for i, answer in enumerate(row["resps"]):
                sums[row["doc_id"], i] = float(answer[0][0])
            hits += row["acc"]
            n += 1
    return {"seconds": seconds, "sums": sums, "acc": hits / n}


def tokens_of_requests(args, job):
    task, shots, limit = job
    command = [args.hayfork, "show", "prompts", task, "--model", args.model, "--data", args.data, "--num-fewshot", shots,
               "--limit", limit, "-o", "jsonl"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    total = 0
    for line in done.stdout.splitlines():
        row = json.loads(line)
        for request in row["requests"]:
            context = request.get("context_ids", row.get("context_ids"))
            total += len(context) + len(request["continuation_ids"]) - 1
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--hayfork", default="build/bin/hayfork")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--batch-size", default="1")
    parser.add_argument("--jobs", default="hellaswag:0:200,arc_easy:5:200")
    args = parser.parse_args()
    print("load average", *(f"{x:.1f}" for x in os.getloadavg()))
    for text in args.jobs.split(","):
        job = text.split(":")
        ours, theirs = [], []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(args.repeats):
                ours.append(run_hayfork(args, job, folder))
                theirs.append(run_harness(args, job, folder))
        a, b = min(ours, key=lambda r: r["seconds"]), min(theirs, key=lambda r: r["seconds"])
        total = tokens_of_requests(args, job)
        largest = max(abs(a["sums"][key] - b["sums"][key]) for key in b["sums"])
        print(f"{job[0]} {job[1]}-shot {job[2]} documents: hayfork {a['seconds']:.2f} s, lm-eval HF {b['seconds']:.2f} s, "
              f"{b['seconds'] / a['seconds']:.1f} x; computed {a['rows']} of {total} tokens ({a['rows'] / total:.2f}); "
              f"acc {a['acc']:.4f} and {b['acc']:.4f}, largest difference of a log-probability {largest:.1e}")  # fmt: skip
    print("load average", *(f"{x:.1f}" for x in os.getloadavg()))


if __name__ == "__main__":
    main()

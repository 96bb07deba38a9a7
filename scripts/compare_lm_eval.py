#!/usr/bin/env python3
"""Speed and scores beside lm-evaluation-harness's Hugging Face backend: one checkpoint, the same documents and cores.

    scripts/compare_lm_eval.py --model smollm2 --data data [--hayfork build/bin/hayfork] [--threads 2] [--repeats 1]
                               [--jobs hellaswag:0:200,arc_easy:5:200] [--batch-size 1] [--keep FOLDER]

A job is task:examples:documents. The contestants take turns, and the best of the repeats is printed: seconds from the
first request to the last answer (loading is on neither clock), float32 both; and seconds of processors, which a busy
machine changes less (ours with loading). "computed" is the number of token rows our engine computed over the tokens of all
requests as the harness sends them. Then the harness's files are imported beside our run: `hayfork compare` must call every
metric "same" sample by sample, and the largest difference of a log-probability is printed. Needs lm_eval, torch,
transformers.
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


def run_hayfork(args, job, db):
    task, shots, limit = job
    command = [args.hayfork, "run", "--model", args.model, "--data", args.data, "--tasks", task, "--num-fewshot", shots,
               "--limit", limit, "--device", "cpu", "--dtype", "f32", "--threads", str(args.threads), "--db", db]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(errors)
    with sqlite3.connect(db) as store:
        task_id, run, seconds = store.execute("SELECT id, run, wall_s FROM run_tasks ORDER BY id DESC").fetchone()
        rows = store.execute("SELECT sum(rows_base) FROM samples WHERE run_task = ?", (task_id,)).fetchone()[0]
        name = store.execute("SELECT run_id FROM runs WHERE id = ?", (run,)).fetchone()[0]
    return {"seconds": seconds, "work": usage.ru_utime + usage.ru_stime, "rows": rows, "run": name}


def run_harness(args, job, folder):
    task, shots, limit = job
    command = [sys.executable, str(HERE / "lm_eval_results.py"), "--model", args.model, "--data", args.data, "--tasks", task,
               "--num-fewshot", shots, "--limit", limit, "--threads", str(args.threads), "--batch-size", args.batch_size,
               "--out", folder]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(args.threads)})
    if done.returncode != 0:
        sys.exit(done.stderr[-4000:])
    seconds, work = re.search(r"^seconds ([0-9.]+), of processors ([0-9.]+)", done.stdout, re.M).groups()
    newest = max(glob.glob(os.path.join(folder, "**", "results_*.json"), recursive=True), key=os.path.getmtime)
    date = os.path.basename(newest)[len("results_") : -len(".json")]
    samples = glob.glob(os.path.join(os.path.dirname(newest), f"samples_{task}_{date}.jsonl"))
    return {"seconds": float(seconds), "work": float(work), "files": [newest, *samples]}


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


def hayfork(args, *words):
    done = subprocess.run([args.hayfork, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"hayfork {' '.join(words)}: {done.stderr}")
    return done.stdout


def compare(args, ours, theirs, db):
    """Every metric that both have, sample by sample; the largest difference of a log-probability."""
    name = f"harness-{ours['run']}"
    hayfork(args, "import", "lm-eval", *theirs["files"], "--db", db, "--name", name)
    words = []
    with sqlite3.connect(db) as store:
        query = "SELECT DISTINCT m.metric FROM metrics m JOIN run_tasks t ON t.id = m.run_task JOIN runs r ON r.id = t.run WHERE r.name = ?"
        metrics = [row[0] for row in store.execute(query, (name,))]
        query = """SELECT s.doc_id, c.choice, c.logprob FROM sample_choices c JOIN samples s ON s.id = c.sample
                   JOIN run_tasks t ON t.id = s.run_task JOIN runs r ON r.id = t.run WHERE r.name = ? OR r.run_id = ?"""
        sums = [{(doc, choice): value for doc, choice, value in store.execute(query, (x, x))} for x in (name, ours["run"])]
    for metric in metrics:
        found = json.loads(hayfork(args, "compare", ours["run"], name, "--metric", metric, "--db", db, "-o", "json"))
        row = found["comparison"][0]
        words.append(f"{metric} {row['base']} and {row['cand']} on {row['pairs']} pairs: {row['verdict']}")
    largest = max(abs(sums[0][key] - sums[1][key]) for key in sums[0])
    return words, largest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--hayfork", default="build/bin/hayfork")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--batch-size", default="1")
    parser.add_argument("--jobs", default="hellaswag:0:200,arc_easy:5:200")
    parser.add_argument("--keep", metavar="FOLDER", help="where the harness's files and the database stay")
    args = parser.parse_args()
    print("load average", *(f"{x:.1f}" for x in os.getloadavg()))
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or temporary
        os.makedirs(folder, exist_ok=True)
        for text in args.jobs.split(","):
            job = text.split(":")
            db = os.path.join(folder, f"{job[0]}-{job[1]}.db")
            ours, theirs = [], []
            for _ in range(args.repeats):
                ours.append(run_hayfork(args, job, db))
                theirs.append(run_harness(args, job, folder))
            a, b = (min(all_, key=lambda r: r["seconds"]) for all_ in (ours, theirs))
            total = tokens_of_requests(args, job)
            print(f"{job[0]} {job[1]}-shot {job[2]} documents: hayfork {a['seconds']:.2f} s ({a['work']:.2f} of processors), "
                  f"lm-eval HF {b['seconds']:.2f} s ({b['work']:.2f}), {b['seconds'] / a['seconds']:.1f} x "
                  f"({b['work'] / a['work']:.1f} x); computed {a['rows']} of {total} tokens ({a['rows'] / total:.2f})")  # fmt: skip
            words, largest = compare(args, a, b, db)
            print("  " + "; ".join(words) + f"; largest difference of a log-probability {largest:.1e}", flush=True)
    print("load average", *(f"{x:.1f}" for x in os.getloadavg()))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Every document of a data folder: are the texts, ids and hashes that we would send those of lm-evaluation-harness?

    scripts/check_lm_eval_prompts.py --model DIR --data DIR [--hayfork build/bin/hayfork] [--limit N] JOB…

A JOB is task[:examples[:off|turns|merged]], the last for the chat template: arc_easy:5, mmlu_anatomy:5:merged. The harness
encodes, its model is not asked (scripts/lm_eval_results.py --requests). Prints a line a job and exits 1 where they differ.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def harness(args, tasks, shots, chat, folder):
    """{task: {document: row}}"""
    file = os.path.join(folder, "requests.jsonl")
    command = [sys.executable, str(HERE / "lm_eval_results.py"), "--model", args.model, "--data", args.data, "--tasks",
               ",".join(tasks), "--num-fewshot", shots, "--chat", chat, "--requests", file]  # fmt: skip
    done = subprocess.run(command + limit(args), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{tasks}: {done.stderr[-3000:]}")
    rows = {task: {} for task in tasks}
    with open(file, encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            rows[row["task"]][row["doc_id"]] = row
    return rows


def limit(args):
    return ["--limit", str(args.limit)] if args.limit else []


def ours(args, task, shots, chat):
    command = [args.hayfork, "show", "prompts", task, "--model", args.model, "--data", args.data, "--num-fewshot", shots,
               "-o", "jsonl", *limit(args)]  # fmt: skip
    if chat != "off":
        command += ["--chat-template", "--chat-turns", "merged" if chat == "merged" else "multi"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{task}: {done.stderr}")
    return {row["doc_id"]: row for row in map(json.loads, done.stdout.splitlines())}


def differences(a, b):
    """What differs of one document, or nothing."""
    for key in ("doc_hash", "prompt_hash", "target_hash"):
        if a[key] != b[key]:
            yield key, a[key], b[key]
    if len(a["requests"]) != len(b["requests"]):
        yield "number of requests", len(a["requests"]), len(b["requests"])
    for mine, theirs in zip(a["requests"], b["requests"]):
        mine = {"context": a.get("context"), "context_ids": a.get("context_ids"), **mine}
        if theirs["context"] == theirs["context"].rstrip():  # else both move the blanks before they encode
            keys = ("context", "continuation", "context_ids", "continuation_ids")
        else:
            keys = ("context_ids", "continuation_ids")
        for key in keys:
            if mine[key] != theirs[key]:
                yield key, mine[key], theirs[key]


def report(job, a, b):
    """Prints what one job found; True where all is equal."""
    task, shots, chat = job
    wrong = {doc: list(differences(a[doc], b[doc])) for doc in b if doc in a}
    wrong = {doc: found for doc, found in wrong.items() if found}
    missing = len(b.keys() ^ a.keys())
    n = sum(len(row["requests"]) for row in b.values())
    print(f"{task}, {shots}-shot, chat {chat}: {len(b)} documents, {n} requests, {len(wrong)} differ", flush=True)
    for doc, found in list(wrong.items())[:2]:
        for key, mine, theirs in found[:3]:
            print(f"  document {doc}: {key}\n    hayfork {mine!r}\n    harness {theirs!r}"[:1200])
    if missing:
        print(f"  {missing} documents are in one of the two only")
    return not wrong and missing == 0 and len(b) > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", metavar="JOB")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--hayfork", default="build/bin/hayfork")
    parser.add_argument("--limit", type=int)
    args = parser.parse_args()
    alike = {}  # jobs with the same examples and chat form share one run of the harness
    for job in args.jobs:
        task, shots, chat = (job.split(":") + ["0", "off"][job.count(":") :])[:3]
        alike.setdefault((shots, chat), []).append(task)
    equal = True
    for (shots, chat), tasks in alike.items():
        with tempfile.TemporaryDirectory() as folder:
            theirs = harness(args, tasks, shots, chat, folder)
        for task in tasks:
            equal = report((task, shots, chat), ours(args, task, shots, chat), theirs[task]) and equal
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())

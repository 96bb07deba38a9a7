#!/usr/bin/env python3
"""Every document of a data folder: are the texts, ids and hashes that we would send those of lm-evaluation-harness?

    scripts/check_lm_eval_prompts.py --model DIR --data DIR [--hayfork build/bin/hayfork] [--limit N] JOB…
    scripts/check_lm_eval_prompts.py --model DIR --data tests/golden/lm_eval_rows --write tests/golden/lm_eval_forms.jsonl JOB…

A JOB is task[:examples[:off|turns|merged]], the last for the chat template: arc_easy:5, mmlu_anatomy:5:merged; "forms" stands
for the tasks of all sets in the data folder, without examples and with two; a task may be a task file named after it. The
harness encodes, its model is not asked (scripts/lm_eval_results.py --requests). Prints a line a job and exits 1 where they
differ. --write keeps what the harness asked, its made-up answers and its metrics, without ids:
tests/tasks/lm_eval_forms_test.cc reads it.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


# The harness asks these without examples only: rolled-over texts have none, and the classes of the others cannot make any.
ROLLING = {"wikitext", "c4"}
NO_EXAMPLES = ROLLING | {"fda", "swde", "squad_completion"}


def form_jobs(data):
    sets = sorted(folder.name for folder in pathlib.Path(data).iterdir() if folder.is_dir())
    sets += [f"{name}_continuation" for name in sets if name.startswith("mmlu_")]
    return sets + [f"{name}:2" for name in sets if name not in NO_EXAMPLES]


def name_of(task):
    return pathlib.Path(task).stem if task.endswith(".yaml") else task


def harness(args, tasks, shots, chat, folder):
    """{task: {document: row, "results": line}}"""
    file = os.path.join(folder, "requests.jsonl")
    command = [sys.executable, str(HERE / "lm_eval_results.py"), "--model", args.model, "--data", args.data, "--tasks",
               ",".join(tasks), "--num-fewshot", shots, "--chat", chat, "--requests", file]  # fmt: skip
    done = subprocess.run(command + limit(args), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{tasks}: {done.stderr[-3000:]}")
    rows = {name_of(task): {} for task in tasks}
    with open(file, encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            rows[row["task"]][row.get("doc_id", "results")] = row
    return rows


def limit(args):
    return ["--limit", str(args.limit)] if args.limit else []


def ours(args, task, shots, chat):
    command = [args.hayfork, "show", "prompts", task, "--model", args.model, "--data", args.data, "--num-fewshot", shots,
               "-o", "jsonl", *limit(args)]  # fmt: skip
    if task in ROLLING:
        config = json.loads((pathlib.Path(args.model) / "config.json").read_text(encoding="utf-8"))
        command += ["--rolling-window", str(config["max_position_embeddings"])]
    if chat != "off":
        command += ["--chat-template", "--chat-turns", "merged" if chat == "merged" else "multi"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{task}: {done.stderr}")
    return {row["doc_id"]: row for row in map(json.loads, done.stdout.splitlines())}


def differences(a, b):
    """What differs of one document, or nothing."""
    for key in ("doc_hash", "prompt_hash", "target_hash", "text", "windows", "context_ids", "until", "max_gen_toks"):
        if key in b and a.get(key) != b[key]:
            yield key, a.get(key), b[key]
    ours, theirs = a.get("requests", []), b.get("requests", [])
    if len(ours) != len(theirs):
        yield "number of requests", len(ours), len(theirs)
    for mine, other in zip(ours, theirs):
        mine = {"context": a.get("context"), "context_ids": a.get("context_ids"), **mine}
        for key in ("context", "continuation", "context_ids", "continuation_ids"):
            if mine[key] != other[key]:
                yield key, mine[key], other[key]


def report(job, a, b):
    """Prints what one job found; True where all is equal."""
    task, shots, chat = job
    wrong = {doc: list(differences(a[doc], b[doc])) for doc in b if doc in a}
    wrong = {doc: found for doc, found in wrong.items() if found}
    missing = len(b.keys() ^ a.keys())
    n = sum(len(row.get("requests", [row])) for row in b.values())
    print(f"{task}, {shots}-shot, chat {chat}: {len(b)} documents, {n} requests, {len(wrong)} differ", flush=True)
    for doc, found in list(wrong.items())[:2]:
        for key, mine, theirs in found[:3]:
            print(f"  document {doc}: {key}\n    hayfork {mine!r}\n    harness {theirs!r}"[:1200])
    if missing:
        print(f"  {missing} documents are in one of the two only")
    return not wrong and missing == 0 and len(b) > 0


def written(row):
    """The row without what depends on a tokenizer; a context that is the one before it is left out."""
    row = {key: value for key, value in row.items() if key not in ("context_ids", "windows")}
    if "requests" in row:
        before, pairs = None, []
        for request in row["requests"]:
            context = request["context"]
            pairs.append([request["continuation"]] if context == before else [request["continuation"], context])
            before = context
        row["requests"] = pairs
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", metavar="JOB")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--hayfork", default="build/bin/hayfork")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--write", metavar="FILE")
    args = parser.parse_args()
    jobs = [job for name in args.jobs for job in (form_jobs(args.data) if name == "forms" else [name])]
    alike = {}  # jobs with the same examples and chat form share one run of the harness
    for job in jobs:
        task, shots, chat = (job.split(":") + ["0", "off"][job.count(":") :])[:3]
        alike.setdefault((shots, chat), []).append(task)
    equal, lines = True, []
    for (shots, chat), tasks in alike.items():
        with tempfile.TemporaryDirectory() as folder:
            theirs = harness(args, tasks, shots, chat, folder)
        for task in tasks:
            rows = theirs[name_of(task)]
            results = rows.pop("results")
            equal = report((task, shots, chat), ours(args, task, shots, chat), rows) and equal
            lines += [{"shots": int(shots), **written(row)} for row in [*rows.values(), results]]
    if args.write:
        with open(args.write, "w", encoding="utf-8") as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs a task of lm-evaluation-harness on documents of a file, offline, and writes its own result files.

    pip install lm_eval
    scripts/make_lm_eval_results.py --model DIR --task arc_easy --docs docs.jsonl --out OUT [--fewshot 0] [--threads 2]

docs.jsonl holds rows as the task's data set has them on the hub ("question", "choices", "answerKey", … for arc_easy).
Only where the documents come from is replaced: prompts, scoring, aggregation and files are the harness's. The files are
what `hayfork import lm-eval` reads; with OUT holding files of `hayfork export lm-eval` instead, --check FILE prints the
harness's own table of them.
"""
import argparse
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")


def check(path):
    from lm_eval.utils import get_file_task_name, make_table

    with open(path) as file:
        print(make_table(json.load(file)))
    folder = os.path.dirname(path) or "."
    for name in sorted(os.listdir(folder)):
        if name.startswith("samples_") and name.endswith(".jsonl"):
            with open(os.path.join(folder, name)) as file:
                rows = [json.loads(line) for line in file]
            print(f"{get_file_task_name(name)}: {len(rows)} samples, metrics {rows[0]['metrics']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--task", default="arc_easy")
    parser.add_argument("--docs")
    parser.add_argument("--out")
    parser.add_argument("--fewshot", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", metavar="results.json")
    args = parser.parse_args()
    if args.check:
        return check(args.check)
    if not (args.model and args.docs and args.out):
        parser.error("--model, --docs and --out are needed")

    import torch
    from lm_eval import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks._yaml_loader import load_yaml

    torch.set_num_threads(args.threads)
    manager = TaskManager()
    config = dict(load_yaml(manager.task_index[args.task].yaml_path, resolve_func=True))
    config.update({"task": args.task, "dataset_path": "json", "dataset_name": None,
                   "dataset_kwargs": {"data_files": {"test": os.path.abspath(args.docs)}}, "test_split": "test"})
    for split in ("training_split", "validation_split", "fewshot_split"):
        config.pop(split, None)
    tracker = EvaluationTracker(output_path=args.out)
    model = HFLM(pretrained=args.model, device="cpu", dtype="float32", batch_size=1)
    results = simple_evaluate(model=model, model_args={"pretrained": args.model}, tasks=[config],
                              num_fewshot=args.fewshot, log_samples=True, evaluation_tracker=tracker)
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])
    print(json.dumps(results["results"], default=str))
    return 0


sys.exit(main())

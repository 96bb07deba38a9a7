#!/usr/bin/env python3
"""Runs lm-evaluation-harness over the data folder of `hayfork data add` and keeps its result files.

    pip install lm_eval
    scripts/lm_eval_results.py --model DIR --data DIR --tasks arc_easy,hellaswag --limit 60 --out OUT [--num-fewshot 5]
    scripts/lm_eval_results.py --check OUT/<model>/results_….json

The first writes OUT/<model>/results_*.json and samples_<task>_*.jsonl, as `lm_eval run --log_samples` does: what `hayfork
import` reads and `hayfork compare` holds beside a run of its own. Task files, prompts, tokenization and metrics are the
harness's; only the loading of a data set is replaced, so no network is needed. Prints its evaluation time (without
loading). With --requests FILE the model is not asked: FILE gets a JSON line a document with the texts and ids that the
harness would send, the made-up scores that it got for an answer and its metrics of them, for
scripts/check_lm_eval_prompts.py.
The second has the harness's own tools read result files, for instance those of `hayfork export lm-eval`, and print their
table. Needs the Python packages lm_eval, torch, transformers.
"""
import argparse
import json
import os
import sys
import time

from lm_eval_recorder import Recorder

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")


# Tasks that are a class instead of a file do not know their names.
CLASSES = {"FDA": "fda", "SWDE": "swde", "SQUADCompletion": "squad_completion"}


def local_dataset(data, task, *others):
    """The splits of DATA/<task> (or of its collection, by subject, or of the others) as the harness wants them."""
    import datasets

    for name, subject in [(task, None), *collections(task), *others]:
        folder = os.path.join(data, name)
        if not os.path.isdir(folder):
            continue
        splits = {}
        for file in sorted(os.listdir(folder)):
            if not file.endswith(".jsonl"):
                continue
            with open(os.path.join(folder, file), encoding="utf-8") as lines:
                rows = [json.loads(line) for line in lines if line.strip()]
            if subject:
                rows = [row for row in rows if row.get("subject") == subject]
            splits[file[: -len(".jsonl")]] = datasets.Dataset.from_list(rows)
        return datasets.DatasetDict(splits)
    raise SystemExit(f"{data} has no data set for {task}")


def collections(task):
    base = task.removesuffix("_continuation")
    out = [(base, None)] if base != task else []
    for family, folders in {"mmlu_": ["mmlu"], "ceval-valid_": ["ceval-valid", "ceval"], "cmmlu_": ["cmmlu"]}.items():
        if base.startswith(family):
            out += [(folder, base[len(family) :]) for folder in folders]
    return out


def patch(data):
    from lm_eval.api.task import ConfigurableTask

    def download(self, dataset_kwargs=None, **kwargs):
        task = self.config.task or CLASSES[type(self).__name__]
        self.dataset = local_dataset(data, task, (self.DATASET_PATH, None))  # a task file's set has a name of its own
        rows = next(iter(self.dataset.values()))
        for split in (self.config.training_split, self.config.validation_split, self.config.test_split):
            if split and split not in self.dataset:  # the harness looks at it, whether it draws examples or not
                self.dataset[split] = rows.select([])
        if task == "hellaswag" and "query" in rows.column_names:
            self.config.process_docs = None  # its text is cleaned already

    ConfigurableTask.download = download


def check(path):
    """Reads a results file and the samples beside it with the harness's own tools."""
    from lm_eval.utils import get_file_datetime, get_file_task_name, get_results_filenames, get_sample_results_filenames
    from lm_eval.utils import make_table

    folder = os.path.dirname(os.path.abspath(path))
    files = sorted(os.path.join(folder, name) for name in os.listdir(folder))
    if os.path.abspath(path) not in get_results_filenames(files):
        sys.exit(f"{path}: the harness would not take it for a results file")
    with open(path, encoding="utf-8") as file:
        print(make_table(json.load(file)))
    for name in map(os.path.basename, get_sample_results_filenames(files)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        print(f"{get_file_task_name(name)}, {get_file_datetime(name)}: {len(rows)} samples, metrics {rows[0]['metrics']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="results.json")
    parser.add_argument("--model")
    parser.add_argument("--data")
    parser.add_argument("--tasks")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--num-fewshot", type=int)
    parser.add_argument("--chat", choices=["off", "turns", "merged"], default="off", help="the chat template, and how")
    parser.add_argument("--batch-size", default="1")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out")
    parser.add_argument("--requests", metavar="FILE")
    args = parser.parse_args()
    if args.check:
        return check(args.check)
    if not (args.model and args.data and args.tasks and (args.out or args.requests)):
        parser.error("--model, --data, --tasks and --out (or --requests) are needed")

    import lm_eval
    import torch
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.models.huggingface import HFLM

    if args.threads:
        torch.set_num_threads(args.threads)
    patch(args.data)
    model = HFLM(pretrained=args.model, dtype=args.dtype, device="cpu", batch_size=args.batch_size)
    recorder = Recorder(model) if args.requests else None
    tracker = EvaluationTracker(output_path=args.out)
    begin, work = time.time(), time.process_time()
    results = lm_eval.simple_evaluate(
        model=model,
        model_args={"pretrained": args.model},
        tasks=args.tasks.split(","),
        num_fewshot=args.num_fewshot,
        limit=args.limit,
        apply_chat_template=args.chat != "off",
        fewshot_as_multiturn=args.chat == "turns",
        log_samples=True,
        bootstrap_iters=100000,
        evaluation_tracker=tracker,
    )
    seconds, work = time.time() - begin, time.process_time() - work
    if recorder:
        return recorder.save(results, args.requests)
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])
    for task, values in results["results"].items():
        print(task, {key: value for key, value in values.items() if isinstance(value, float)})
    print(f"seconds {seconds:.2f}, of processors {work:.2f}")


if __name__ == "__main__":
    sys.exit(main())

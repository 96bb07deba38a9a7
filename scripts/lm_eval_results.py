#!/usr/bin/env python3
"""Runs lm-evaluation-harness over the data folder of `hayfork data add` and keeps its result files.

    scripts/lm_eval_results.py --model DIR --data DIR --tasks arc_easy,hellaswag --limit 60 --out OUT [--num-fewshot 5]

Writes OUT/<model>/results_*.json and samples_<task>_*.jsonl, as `lm_eval run --log_samples` does: what `hayfork import`
reads and `hayfork compare` holds beside a run of its own. Task files, prompts, tokenization and metrics are the
harness's; only the loading of a data set is replaced, so no network is needed. Prints its evaluation time.
Needs the Python packages lm_eval, torch, transformers.
"""
import argparse
import json
import os
import time


def local_dataset(data, task, config):
    """The splits of DATA/<task> (or of its collection, by subject) as the harness wants them."""
    import datasets

    for name, subject in [(task, None), *collections(task)]:
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
            for row in rows:
                if isinstance(row.get("problems"), list):  # RACE: a Python literal there
                    row["problems"] = repr(row["problems"])
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
        self.dataset = local_dataset(data, self.config.task, self.config)
        rows = next(iter(self.dataset.values()))
        if self.config.task == "hellaswag" and "query" in rows.column_names:
            self.config.process_docs = None  # its text is cleaned already

    ConfigurableTask.download = download


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tasks", required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--num-fewshot", type=int)
    parser.add_argument("--batch-size", default="1")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import lm_eval
    import torch
    from lm_eval.loggers import EvaluationTracker

    if args.threads:
        torch.set_num_threads(args.threads)
    patch(args.data)
    model = lm_eval.models.huggingface.HFLM(
        pretrained=args.model, dtype=args.dtype, device="cpu", batch_size=args.batch_size, trust_remote_code=False
    )
    tracker = EvaluationTracker(output_path=args.out)
    begin = time.time()
    results = lm_eval.simple_evaluate(
        model=model,
        tasks=args.tasks.split(","),
        num_fewshot=args.num_fewshot,
        limit=args.limit,
        log_samples=True,
        evaluation_tracker=tracker,
    )
    seconds = time.time() - begin
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])
    for task, values in results["results"].items():
        print(task, {key: value for key, value in values.items() if isinstance(value, float)})
    print(f"seconds {seconds:.2f}")


if __name__ == "__main__":
    main()

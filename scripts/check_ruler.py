#!/usr/bin/env python3
"""RULER's own generators beside ours: are all fields of all rows equal?

    scripts/check_ruler.py --upstream RULER --sources DIR [--hayfork build/bin/hayfork] [--jobs N] --tokenizers DIR,…
        [--tasks vt,cwe] [--lengths 1000,4096] [--seeds 0,42] [--templates base,Phi3] [--samples N] [--protocol P]

RULER is an unchanged checkout of NVIDIA/RULER: at c3f5e3b for p1, and for p2, which is what its prepare.py
--prepare_for_ns makes; at 4f6507e for p0, whose writer of rows, NeMo's, is replaced by json. Python needs its packages
(nltk with punkt_tab, wonderwords, tenacity, transformers, tqdm, PyYAML, scipy). DIR holds what upstream reads, by
upstream's names: PaulGrahamEssays.json, squad.json, hotpotqa.json, english_words.json; both programs read these files,
and the word lists and the Punkt parameters of the Python packages. Every combination is a run. Where upstream never
ends (--patience seconds) or fails, what ours says is printed for a reader to judge. Prints what differs and exits 1
where anything does.
"""
import argparse
import collections
import functools
import gc
import itertools
import json
import multiprocessing
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import traceback
import types
from concurrent.futures import ThreadPoolExecutor

Run = collections.namedtuple("Run", "tokenizer task length seed template samples protocol")
FIELDS = ("index", "input", "outputs", "length", "length_w_model_temp", "answer_prefix", "token_position_answer")


def upstream_module(root, name):
    return runpy.run_path(str(root / "scripts" / "data" / name))


def command_line(root, run, save):
    """The arguments with which upstream's prepare.py calls a generator."""
    import yaml

    tasks = upstream_module(root, "synthetic/constants.py")["TASKS"]
    templates = upstream_module(root, "template.py")["Templates"]
    with open(root / "scripts" / "synthetic.yaml", encoding="utf-8") as file:
        config = yaml.safe_load(file)[run.task]
    base = tasks[config["task"]]
    args = {"save_dir": save, "save_name": run.task, "subset": "validation", "tokenizer_path": run.tokenizer,
            "tokenizer_type": "hf", "max_seq_length": run.length, "tokens_to_generate": base["tokens_to_generate"],
            "num_samples": run.samples, "random_seed": run.seed, **config["args"]}  # fmt: skip
    if config["task"] == "qa":
        args["pre_samples"] = 0
    template = templates[run.template]
    if run.protocol == "p2":
        tokenizer = upstream_module(root, "tokenizer.py")["select_tokenizer"]("hf", run.tokenizer)
        args["model_template_token"] = len(tokenizer.text_to_tokens(template))
        template = templates["base"]
    args["template"] = template.format(task_template=base["template"]) + base["answer_prefix"]
    line = []
    for key, value in args.items():
        line += [f"--{key}"] + ([str(value)] if value is not None and value != "" else [])
    return root / "scripts" / "data" / "synthetic" / (config["task"] + ".py"), line


@functools.cache
def niah_words(root):
    """niah.py joins and sorts six million words wherever it starts; here that is done once."""
    script, sys.argv = root / "scripts" / "data" / "synthetic" / "niah.py", ["niah.py"]
    code = script.read_text(encoding="utf-8")
    begin, end = code.index("nouns ="), code.index("# Positions")
    import wonderwords

    names = {"wonderwords": wonderwords}
    exec(compile(code[begin:end], script, "exec"), names)
    gc.freeze()
    return names["words"]


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def generate(root, run, save, words):
    """In a process of its own: a generator parses its arguments and loads its sources where it is imported."""
    script, line = command_line(root, run, save)
    names = {}
    if run.protocol == "p0":
        nemo = types.SimpleNamespace(read_manifest=None, write_manifest=write_rows)
        sys.modules["nemo.collections.asr.parts.utils.manifest_utils"] = nemo
    if words is not None:
        import wonderwords

        wonderwords.random_word._get_words_from_text_file = lambda _: []
        names["sorted"] = lambda items, **how: sorted(items, **how) if items else words
    log = os.open(pathlib.Path(save) / "log", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    sys.argv = [str(script), *line]
    sys.path.insert(0, str(script.parent))
    try:
        runpy.run_path(str(script), names, "__main__")
        os._exit(0)  # no shutting down of the threads of the process that was forked
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        os._exit(1)


def theirs(root, run, patience):
    """(rows, "") or (None, why)"""
    words = niah_words(root) if run.task.startswith("niah") else None
    with tempfile.TemporaryDirectory() as save:
        process = multiprocessing.get_context("fork").Process(target=generate, args=(root, run, save, words))
        process.start()
        process.join(patience)
        if process.is_alive():
            process.kill()
            process.join()
            return None, "upstream never ends"
        if process.exitcode != 0:
            last = (pathlib.Path(save) / "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            return None, f"upstream fails: exit {process.exitcode}: {''.join(last)}"
        with open(pathlib.Path(save) / run.task / "validation.jsonl", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines], ""


def ours(args, run):
    import nltk
    import wonderwords

    assets = pathlib.Path(wonderwords.__file__).parent / "assets"
    sources = pathlib.Path(args.sources)
    command = [args.hayfork, "show", "prompts", "ruler_" + run.task, "--model", run.tokenizer, "--length", run.length,
               "--samples", run.samples, "--seed", run.seed, "--template", run.template, "--protocol", run.protocol,
               "-o", "jsonl", "--words", assets,
               "--punkt", nltk.data.find("tokenizers/punkt_tab/english"),
               "--essays", sources / "PaulGrahamEssays.json", "--squad", sources / "squad.json",
               "--hotpotqa", sources / "hotpotqa.json", "--english-words", sources / "english_words.json"]  # fmt: skip
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, encoding="utf-8")
    said = " | ".join(line.strip() for line in done.stderr.strip().splitlines())
    if done.returncode != 0:
        return None, f"exit {done.returncode}: {said}"
    return [json.loads(line) for line in done.stdout.split("\n") if line], said


def differences(mine, other):
    if len(mine) != len(other):
        yield f"{len(mine)} rows, upstream {len(other)}"
    for number, (a, b) in enumerate(zip(mine, other)):
        for field in FIELDS:
            if a.get(field) == b.get(field):
                continue
            x, y = a.get(field), b.get(field)
            if isinstance(x, str) and isinstance(y, str):
                at = len(os.path.commonprefix([x, y]))
                x, y = (f"from {at}: {text[max(0, at - 40):at + 60]!r}" for text in (x, y))
            yield f"row {number}, {field}: {x}\n    upstream {y}"
        if set(a) != set(b):
            yield f"row {number}: fields {sorted(set(a) ^ set(b))} are in one of the two only"


def check(args, root, run):
    """(what came of it, rows compared, text to print)"""
    other, why = theirs(root, run, args.patience)
    mine, said = ours(args, run)
    name = " ".join(str(part) for part in (pathlib.Path(run.tokenizer).name, *run[1:]))
    if other is None:
        kind = re.sub(":.*", "", why)
        return kind, 0, f"{name}: {why}; ours: {'rows, ' if mine is not None else ''}{said}"
    if mine is None:
        return "differ", len(other), f"{name}: ours has no rows: {said}"
    found = list(differences(mine, other))
    return ("differ" if found else "equal"), len(other), "\n  ".join([f"{name}: differs"] + found[:4]) if found else ""


def prepare(args, folder):
    """A copy of the checkout with the sources where upstream looks for them."""
    root = pathlib.Path(folder) / "upstream"
    shutil.copytree(args.upstream, root, ignore=shutil.ignore_patterns(".git"))
    for name in ("PaulGrahamEssays.json", "squad.json", "hotpotqa.json", "english_words.json"):
        shutil.copyfile(pathlib.Path(args.sources) / name, root / "scripts" / "data" / "synthetic" / "json" / name)
    return root


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = {"type": lambda text: text.split(",")}
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--sources", required=True)
    parser.add_argument("--hayfork", default="build/bin/hayfork")
    parser.add_argument("--tokenizers", required=True, **listed)
    parser.add_argument("--tasks", **listed)
    parser.add_argument("--lengths", default=["4096"], **listed)
    parser.add_argument("--seeds", default=["42"], **listed)
    parser.add_argument("--templates", default=["base"], **listed)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--protocol", default="p1", choices=["p0", "p1", "p2"])
    parser.add_argument("--patience", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    import nltk  # noqa: F401  imported once, for all children
    import scipy.special  # noqa: F401
    import transformers
    import wonderwords  # noqa: F401
    import yaml

    loaded = {folder: transformers.AutoTokenizer.from_pretrained(folder) for folder in args.tokenizers}
    transformers.AutoTokenizer.from_pretrained = lambda folder, **_: loaded[folder]
    with tempfile.TemporaryDirectory() as folder:
        root = prepare(args, folder)
        unknown = set(args.templates) - set(upstream_module(root, "template.py")["Templates"])
        if unknown:
            parser.error(f"this checkout has no template {', '.join(unknown)}")
        if args.tasks is None:
            args.tasks = list(yaml.safe_load((root / "scripts" / "synthetic.yaml").read_text(encoding="utf-8")))
        grid = itertools.product(args.tokenizers, args.tasks, args.lengths, args.seeds, args.templates)
        runs = [Run(tokenizer, task, int(length), int(seed), template, args.samples, args.protocol)
                for tokenizer, task, length, seed, template in grid]  # fmt: skip
        counts, rows = collections.Counter(), 0
        with ThreadPoolExecutor(args.jobs) as pool:
            for kind, n, text in pool.map(lambda run: check(args, root, run), runs):
                counts[kind] += 1
                rows += n
                if text:
                    print(text, flush=True)
    print(f"{len(runs)} runs, {rows} rows: " + ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    return 0 if counts["differ"] == 0 and counts["equal"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Downloads data sets from the Hugging Face hub and hands them to `hayfork data add`.

    scripts/fetch_data.py --data DIR arc_easy hellaswag mmlu      # some
    scripts/fetch_data.py --data DIR --list                       # what there is
    scripts/fetch_data.py --data DIR all

The program itself never opens a network connection. Needs the Python package `datasets`. Licences are those of the
sets' authors (hayfork data list shows them); RACE, C-Eval, CMMLU and WiC are not for commercial use.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

# name: (repository, configuration, {our split: its split})
SETS = {
    "arc_easy": ("allenai/ai2_arc", "ARC-Easy", ["train", "validation", "test"]),
    "arc_challenge": ("allenai/ai2_arc", "ARC-Challenge", ["train", "validation", "test"]),
    "hellaswag": ("Rowan/hellaswag", None, ["train", "validation"]),
    "piqa": ("baber/piqa", None, ["train", "validation"]),
    "social_iqa": ("lighteval/siqa", None, ["train", "validation"]),
    "winogrande": ("allenai/winogrande", "winogrande_xl", ["train", "validation"]),
    "openbookqa": ("allenai/openbookqa", "main", ["train", "validation", "test"]),
    "commonsense_qa": ("tau/commonsense_qa", None, ["train", "validation"]),
    "mmlu": ("cais/mmlu", "all", ["dev", "test"]),
    "race": ("EleutherAI/race", "high", ["test"]),
    "boolq": ("aps/super_glue", "boolq", ["train", "validation"]),
    "cb": ("aps/super_glue", "cb", ["train", "validation"]),
    "copa": ("aps/super_glue", "copa", ["train", "validation"]),
    "multirc": ("aps/super_glue", "multirc", ["train", "validation"]),
    "record": ("aps/super_glue", "record", ["train", "validation"]),
    "sglue_rte": ("aps/super_glue", "rte", ["train", "validation"]),
    "wic": ("aps/super_glue", "wic", ["train", "validation"]),
    "wsc": ("aps/super_glue", "wsc.fixed", ["train", "validation"]),
    "rte": ("nyu-mll/glue", "rte", ["train", "validation"]),
    "xstorycloze_en": ("juletxara/xstory_cloze", "en", ["train", "eval"]),
    "lambada_openai": ("EleutherAI/lambada_openai", "default", ["test"]),
    "lambada_standard": ("cimec/lambada", None, ["validation", "test"]),
    "wikitext": ("EleutherAI/wikitext_document_level", "wikitext-2-raw-v1", ["test"]),
    "based_drop": ("hazyresearch/based_drop", None, ["validation"]),
    "based_nq_2048": ("hazyresearch/based_nq_2048", None, ["validation"]),
    "based_triviaqa": ("hazyresearch/based_triviaqa", None, ["validation"]),
    "based_swde": ("hazyresearch/based-swde-v2", "default", ["validation"]),
    "based_fda": ("hazyresearch/based-fda", "default", ["validation"]),
    "based_squad": ("hazyresearch/based-squad", "default", ["validation"]),
}
# One configuration a subject; their rows go into one set with a field "subject".
BY_SUBJECT = {
    "ceval-valid": ("ceval/ceval-exam", ["dev", "val"]),
    "cmmlu": ("haonan-li/cmmlu", ["dev", "test"]),
}


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def rows_of(name, split):
    import datasets

    if name in BY_SUBJECT:
        repository = BY_SUBJECT[name][0]
        for subject in datasets.get_dataset_config_names(repository):
            for row in datasets.load_dataset(repository, subject, split=split):
                yield {**row, "subject": subject}
    elif name == "c4":
        files = {"validation": "en/c4-validation.00000-of-00008.json.gz"}
        yield from datasets.load_dataset("allenai/c4", data_files=files, split=split)
    else:
        repository, configuration, _ = SETS[name]
        yield from datasets.load_dataset(repository, configuration, split=split)


def splits_of(name):
    if name in BY_SUBJECT:
        return BY_SUBJECT[name][1]
    return ["validation"] if name == "c4" else SETS[name][2]


def fetch(name, data, hayfork, force):
    with tempfile.TemporaryDirectory() as folder:
        words = []
        for split in splits_of(name):
            path = os.path.join(folder, f"{name}.{split}.jsonl")
            write_rows(path, rows_of(name, split))
            words.append(f"{split}={path}")
        command = [hayfork, "data", "add", "--data", data, name, *words] + (["--force"] if force else [])
        return subprocess.run(command).returncode


def main():
    known = sorted([*SETS, *BY_SUBJECT, "c4"])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET")
    parser.add_argument("--data", default=os.environ.get("HAYFORK_DATA"))
    parser.add_argument("--hayfork", default="build/bin/hayfork")
    parser.add_argument("--force", action="store_true", help="replace splits that are there")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        print("\n".join(known))
        return 0
    names = known if args.sets == ["all"] else args.sets
    unknown = [name for name in names if name not in known]
    if unknown or not names or not args.data:
        parser.error(f"unknown: {', '.join(unknown)}" if unknown else "give --data and the names of sets (--list)")
    failed = [name for name in names if fetch(name, args.data, args.hayfork, args.force) != 0]
    if failed:
        print("not added:", ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

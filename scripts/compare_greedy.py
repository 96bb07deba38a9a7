#!/usr/bin/env python3
"""A run's generated answers beside Hugging Face transformers' greedy ones on the same prompts.

    hayfork run --model smollm2 --tasks ruler --lengths 1k --samples 5 --dtype f32 --keep-prompts --db ruler.db
    scripts/compare_greedy.py --model smollm2 --db ruler.db [--run @last] [--hayfork build/bin/hayfork]
                              [--near 0.01] [--dtype float32] [--max-tokens 2048]

Every stored prompt is tokenized by transformers, without special tokens unless the run added a BOS, and continued
greedily with the run's budget. An answer that differs is looked at where it first does: if the logits of the two
tokens are nearer than --near the sample is a near tie and named, else it counts as different. Exit status 1 if any is.
Needs torch and transformers.
"""
import argparse
import json
import subprocess
import sys

import torch
import transformers


def samples_of(options):
    """Rows of `hayfork export samples`, one a sample, with texts."""
    command = [options.hayfork, "export", "samples", options.run, "-o", "jsonl", "--db", options.db]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def first_difference(model, ids, ours, theirs):
    """Where two continuations part, and by how much transformers prefers its own token there."""
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    if at >= len(ours) or at >= len(theirs):
        return at, None
    with torch.no_grad():
        logits = model(torch.tensor([ids + theirs[:at]])).logits[0, -1].float()
    return at, float(logits[theirs[at]] - logits[ours[at]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--db", required=True)
    parser.add_argument("--run", default="@last")
    parser.add_argument("--hayfork", default="build/bin/hayfork")
    parser.add_argument("--near", type=float, default=0.01, help="logit difference of a near tie")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--max-tokens", type=int, default=1 << 20, help="leave out longer prompts")
    parser.add_argument("--per-cell", type=int, default=1 << 20, help="only the first so many of a task and length")
    options = parser.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, options.dtype))
    model.eval()
    counts = {"same": 0, "near tie": 0, "different": 0, "left out": 0}
    seen = {}
    for row in samples_of(options):
        cell = (row["task"], row.get("ctx_len"))
        seen[cell] = seen.get(cell, 0) + 1
        if seen[cell] > options.per_cell:
            continue
        if not row.get("prompt_text") or row.get("response_ids") is None or row["prompt_tokens"] > options.max_tokens:
            counts["left out"] += 1
            continue
        ids = tokenizer(row["prompt_text"], add_special_tokens=False).input_ids
        if len(ids) != row["prompt_tokens"]:
            sys.exit(f"{row['task']} {row['doc_id']}: {len(ids)} tokens here, {row['prompt_tokens']} in the run")
        with torch.no_grad():
            out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                                 max_new_tokens=row["max_new_tokens"], do_sample=False,
                                 pad_token_id=tokenizer.eos_token_id or 0)[0].tolist()[len(ids):]
        ours = [int.from_bytes(bytes.fromhex(row["response_ids"][i:i + 8]), "little", signed=True)
                for i in range(0, len(row["response_ids"]), 8)]
        eos = tokenizer.eos_token_id
        if eos in out and eos not in ours:  # kept in one list, dropped from the other
            out = out[:out.index(eos)]
        theirs = out
        if ours == theirs:
            counts["same"] += 1
            continue
        at, gap = first_difference(model, ids, ours, theirs)
        verdict = "near tie" if gap is not None and gap < options.near else "different"
        counts[verdict] += 1
        print(f"{verdict}: {row['task']} {row['doc_id']} at token {at}, logits {gap} apart", flush=True)
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())

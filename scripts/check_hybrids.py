#!/usr/bin/env python3
"""Linear hybrids of random shapes beside their equations (hybrid_reference.py): what no other library computes.

    scripts/check_hybrids.py [--hayfork build/bin/hayfork] [--device cpu] [--dtype f32] [--kinds hybrid,gla] [--cases 10] [--seed 0]
                             [--keep FOLDER]
    scripts/check_hybrids.py --golden FOLDER    # the reference against stored golden cases (1e-12), to check it first

Kinds: `hybrid` (every mixer and switch of hayfork_hybrid in any order of layers), `orthros_hybrid` and `orthros_h`
(Orthros over it and over qwen3_5_text), minicpm, and the layouts of flash-linear-attention: transformer, gated_deltanet,
gla, retnet, mamba2, the middle three also with softmax layers of their own. Each case draws a shape, weights and the type
they are stored in. Compared: logits at every position, in float64 here and in float32 by `hayfork probe logits`, in chunks
of three sizes that may differ in no bit; log-probabilities of continuations that branch from one context, together and
alone with the same bits; a greedy continuation; K and V of the last layer under Orthros. Largest difference over the
largest value: at most 1e-5, with recurrent layers 2e-5 or ten times what the reference itself loses in float32 (a norm
right after a state that holds almost nothing magnifies rounding), 1e-4 on a GPU. Under `--dtype bf16`: the chunks, and a
root mean square error of at most 1.5 times that of the reference when it rounds every linear, norm and mixer to bfloat16 (on a
GPU the residual stream too, which is kept so there, and without the worst of fifty rows; 2 times with recurrent layers, whose
chunks multiply operands of 8 bits: by itself the gated delta rule loses 1.8 to 2.9 times what rounding its output does).
Exit status 1 if a case fails; its folder is kept. Needs torch and safetensors.
"""
import argparse
import json
import pathlib
import random
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

from check_orthros import check_golden, probe, relative
from hybrid_reference import Reference, Rounded
from hybrid_shapes import KINDS

N_GREEDY = 8
STORED = [torch.float32, torch.float32, torch.bfloat16, torch.float16]


def answers(options, folder, verb, requests, *words):
    path = folder / f"{verb}.jsonl"
    path.write_text("".join(json.dumps(request) + "\n" for request in requests))
    return [json.loads(line) for line in probe(options, verb, "--model", folder, "--requests", path, *words).splitlines()]


def is_recurrent(c):
    return not set(c.get("layer_types", [])) <= {"full_attention", "sliding_attention"} or c["model_type"] in ("gated_deltanet", "gla", "retnet", "mamba2")


def in_chunks(options, folder, rng):
    """Logits of the sequences of ids.json, after passes of three sizes gave the same bits."""
    passes = []
    for chunk in (1, rng.randrange(2, 100), 512):
        probe(options, "logits", "--model", folder, "--ids-file", folder / "ids.json", "--out", folder / "logits", "--chunk", chunk)
        passes.append(load_file(folder / "logits"))
    if not all(torch.equal(passes[0][name], other[name]) for other in passes for name in other):
        raise RuntimeError("chunks change bits")
    return passes[0]


def check_f32(options, folder, rng, c, w, sequences):
    """(worst difference, bound) of a case in `folder`."""
    reference, single = Reference(c, w), Reference(c, w, torch.float32)
    ours, stored = in_chunks(options, folder, rng), {}
    if "orthros" in c and c["layer_types"][-1] in ("full_attention", "sliding_attention"):
        probe(options, "kv", "--model", folder, "--ids-file", folder / "ids.json", "--layer", "last", "--out", folder / "kv")
        stored = load_file(folder / "kv")
    worst, rounding = 0.0, 0.0
    for i, ids in enumerate(sequences):
        logits, rounded = reference.logits(ids), single.logits(ids)
        triples = [(ours[f"logits.{i}"], rounded, logits)]
        if stored:
            triples += zip((stored[f"k.{i}"], stored[f"v.{i}"]), single.kv, reference.kv)
        worst = max(worst, *(relative(mine, exact) for mine, _, exact in triples))
        rounding = max(rounding, *(relative(theirs, exact) for _, theirs, exact in triples))
    bound = 1e-4 if options.device != "cpu" else max(2e-5, 10 * rounding) if is_recurrent(c) else 1e-5
    slack = bound * float(logits.abs().max())
    check_continuations(options, folder, reference, sequences, slack)
    check_greedy(options, folder, reference, sequences[1], slack)
    return worst, bound


def check_bf16(options, folder, rng, c, w, sequences):
    """(root mean square error over that of the rounded reference, bound). On a GPU without the worst of fifty rows: where a norm
    follows a head that holds almost nothing, one row can have half of the error, and which way it was rounded decides."""
    reference, rounded, ours = Reference(c, w), Rounded(c, w, options.device != "cpu"), in_chunks(options, folder, rng)
    errors = [[], []]
    for i, ids in enumerate(sequences):
        exact = reference.logits(ids)
        for j, logits in enumerate((ours[f"logits.{i}"], rounded.logits(ids))):
            errors[j] += (logits.double() - exact).pow(2).sum(-1).tolist()
    rest = len(errors[0]) - (max(1, len(errors[0]) // 50) if options.device != "cpu" else 0)
    mine, theirs = (sum(sorted(rows)[:rest]) for rows in errors)
    return (mine / theirs) ** 0.5, 2.0 if options.device != "cpu" and is_recurrent(c) else 1.5


def check_continuations(options, folder, reference, sequences, slack):
    """Continuations branch from one context and from its middle: log-probabilities within twice `slack` each token, and the
    same bits when nothing is shared, one at a time, backwards and on one thread."""
    longest, tails = sequences[2], [sequences[2][-9:], sequences[1][:7]]
    context = longest[:-9]
    requests = [{"context": context, "continuations": tails}, {"context": longest[:33], "continuations": [longest[33:60]]}]
    found = answers(options, folder, "logprobs", requests)
    alone = answers(options, folder, "logprobs", requests, "--prefix-reuse", "off", "--order", "reverse", "--batch-size", 1, "--threads", 1)
    if found != alone:
        raise RuntimeError("continuations: other bits when computed alone")
    for request, given in zip(requests, found):
        for tail, values in zip(request["continuations"], given["token_logprobs"]):
            rows = reference.logits(request["context"] + tail[:-1])[len(request["context"]) - 1 :].log_softmax(-1)
            want = rows[torch.arange(len(tail)), torch.tensor(tail)]
            if (torch.tensor(values).double() - want).abs().max() > 2 * slack:
                raise RuntimeError(f"continuation: {values} instead of {want.tolist()}")


def check_greedy(options, folder, reference, prompt, slack):
    ids = list(prompt)
    for token in answers(options, folder, "generate", [{"prompt": prompt, "max_new_tokens": N_GREEDY, "ignore_eos": True}])[0]["ids"]:
        last = reference.logits(ids)[-1]
        if float(last.max() - last[token]) > 2 * slack:
            raise RuntimeError(f"greedy: {token} instead of {int(last.argmax())} after {len(ids)} tokens, {float(last.max() - last[token]):.2g} below")
        ids.append(token)
    if len(ids) != len(prompt) + N_GREEDY:
        raise RuntimeError("greedy: too few tokens")


def golden_logits(config, weights):
    own = config.get("orthros", {}).get("backbone_model_type", config["model_type"])
    return Reference(config, weights).logits if own in ("hayfork_hybrid", "qwen3_5_text", *KINDS) else None


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hayfork", default="build/bin/hayfork")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--cases", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", default=None, help="folder of the cases that fail")
    parser.add_argument("--golden", default=None)
    options = parser.parse_args()
    if options.golden:
        sys.exit(check_golden(options.golden, golden_logits))
    kept = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="hybrids-"))
    check, stored = (check_f32, STORED) if options.dtype == "f32" else (check_bf16, [torch.bfloat16])
    n_failed = 0
    for kind in options.kinds.split(","):
        figures = []
        for case in range(options.cases):
            rng = random.Random(f"{kind} {options.seed} {case}")
            torch.manual_seed(1000 * options.seed + case)
            folder = kept / f"{kind}-{options.seed}-{case}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            config, weights = KINDS[kind](rng)
            dtype = rng.choice(stored)
            weights = {name: t.to(dtype).contiguous() for name, t in weights.items()}
            (folder / "config.json").write_text(json.dumps(config, indent=1))
            save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
            sequences = [[rng.randrange(3, config["vocab_size"]) for _ in range(length)] for length in (1, rng.randrange(2, 64), rng.randrange(64, 230))]
            (folder / "ids.json").write_text(json.dumps({"ids": sequences}))
            try:
                worst, bound = check(options, folder, rng, config, weights, sequences)
                figures.append(worst)
                if worst > bound:
                    raise RuntimeError(f"{worst:.2g} above {bound:.2g}")
            except RuntimeError as error:
                print(f"{kind} {case}: {error}\n  {json.dumps(config)}", flush=True)
                n_failed += 1
                continue
            shutil.rmtree(folder)
        what = "difference" if options.dtype == "f32" else "error over that of rounding"
        figures.sort()
        print(f"{kind:16} {len(figures)} shapes, largest {what} {', '.join(f'{x:.2g}' for x in figures[: -4 : -1])}", flush=True)
    sys.exit(1 if n_failed else 0)


if __name__ == "__main__":
    main()

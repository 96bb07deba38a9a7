#!/usr/bin/env python3
"""Orthros written once more, straight from its equations (docs/orthros.md), and random shapes held against it.

    scripts/check_orthros.py [--hayfork build/bin/hayfork] [--device cpu] [--cases 20] [--seed 0] [--keep FOLDER]
    scripts/check_orthros.py --golden FOLDER    # the reference below against stored golden cases (1e-12), to check it first

A case draws a Llama or Qwen3 backbone (heads of any ratio, odd widths, biases), a window, the layers that take part, the
stage of the scale-offset, and weights; the logits of the output stream at every position are computed here in float64
and by `hayfork probe logits` in float32, in one pass and in chunks. Largest difference over the largest logit: at most
1e-5, 1e-4 on a GPU. K and V of the last layer (`hayfork probe kv`) are compared the same way. Exit status 1 if a case
fails; its folder is kept. Needs torch and safetensors.
"""
import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

from hybrid_reference import rms, rotate

GOLDEN = 1e-12  # the references and the golden cases are both float64


def attend(q, k, v, mask):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    score = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("hqk,khd->qhd", score.masked_fill(~mask, float("-inf")).softmax(-1), v).flatten(1)


def orthros(config, weights, ids):
    """Logits of the output stream at every position [T, V], and K, V of the base stream in the last layer [T, Hkv, d]."""
    own, d = config["orthros"], config["head_dim"]
    w = {name: t.double() for name, t in weights.items()}
    taking_part = own["layers"] if own["layers"] is not None else range(config["num_hidden_layers"])
    T = len(ids)
    row, column = torch.arange(T)[:, None], torch.arange(T)[None]
    causal, window = column <= row, (column <= row) & (column > row - own["window_size"])
    base = w["model.embed_tokens.weight"][torch.tensor(ids)]
    output = base.clone()
    eps = config["rms_norm_eps"]
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        a = p + "self_attn."

        def linear(x, name):
            y = x @ w[name + ".weight"].T
            return y + w[name + ".bias"] if name + ".bias" in w else y

        def query(u, stream):
            """α ⊙ (u W_Q) + β before or after the norm of heads, then the rotation."""
            affine = own["scale_offset"] and i in taking_part
            q = linear(u, a + "q_proj")
            scaled = lambda x: w[f"{a}q_affine.{stream}.scale"] * x + w[f"{a}q_affine.{stream}.offset"]  # noqa: E731
            if affine and own["scale_offset_stage"] == "pre_norm":
                q = scaled(q)
            if a + "q_norm.weight" in w:
                q = rms(q.view(T, -1, d), w[a + "q_norm.weight"], eps).flatten(1)
            if affine and own["scale_offset_stage"] == "post_norm":
                q = scaled(q)
            return rotate(q.view(T, -1, d), config["rope_theta"], d)

        u, u_out = (rms(x, w[p + "input_layernorm.weight"], eps) for x in (base, output))
        k, v = linear(u, a + "k_proj").view(T, -1, d), linear(u, a + "v_proj").view(T, -1, d)
        if a + "k_norm.weight" in w:
            k = rms(k, w[a + "k_norm.weight"], eps)
        k = rotate(k, config["rope_theta"], d)
        base = base + linear(attend(query(u, "base"), k, v, window if i in taking_part else causal), a + "o_proj")
        output = output + linear(attend(query(u_out, "output"), k, v, causal), a + "o_proj")

        def feed_forward(x):
            h = rms(x, w[p + "post_attention_layernorm.weight"], eps)
            return linear(torch.nn.functional.silu(linear(h, p + "mlp.gate_proj")) * linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")

        base, output = base + feed_forward(base), output + feed_forward(output)
    head = w["model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"]
    return rms(output, w["model.norm.weight"], eps) @ head.T, k, v


def draw(rng):
    """A configuration and its weights."""
    kv, d = rng.choice([1, 2, 3]), rng.choice([8, 12, 16, 24, 40, 64])
    heads, n = kv * rng.choice([1, 2, 3, 5]), rng.randrange(1, 6)
    backbone = rng.choice(["llama", "qwen3"])
    H, I, V = rng.choice([24, 40, 64, 100]), rng.choice([32, 56, 90]), rng.randrange(50, 300)
    layers = None if rng.random() < 0.5 else sorted(rng.sample(range(n), rng.randrange(1, n + 1)))
    attention_bias, mlp_bias = rng.random() < 0.4, backbone == "llama" and rng.random() < 0.3
    scale_offset = rng.random() < 0.8
    stage = rng.choice(["pre_norm", "post_norm"])
    config = {"model_type": "orthros", "architectures": ["OrthrosForCausalLM"], "vocab_size": V, "hidden_size": H, "intermediate_size": I,
              "num_hidden_layers": n, "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": d, "hidden_act": "silu",
              "rms_norm_eps": rng.choice([1e-6, 1e-5, 1e-3]), "rope_theta": rng.choice([1e2, 1e4, 1e6]), "max_position_embeddings": 4096,
              "attention_bias": attention_bias, "mlp_bias": mlp_bias, "tie_word_embeddings": rng.random() < 0.4, "bos_token_id": 1,
              "eos_token_id": 2, "torch_dtype": "float32",
              "orthros": {"version": 1, "backbone_model_type": backbone, "window_size": rng.choice([1, 2, 3, 7, 16, 33, 64, 500]),
                          "scale_offset": scale_offset, "scale_offset_stage": stage, "layers": layers}}  # fmt: skip
    weights = {}

    def matrix(name, rows, columns, bias=False):
        weights[name + ".weight"] = torch.randn(rows, columns) / columns**0.5
        if bias:
            weights[name + ".bias"] = 0.2 * torch.randn(rows)

    weights["model.embed_tokens.weight"] = torch.randn(V, H)
    for i in range(n):
        p = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{p}{norm}.weight"] = 1 + 0.2 * torch.randn(H)
        matrix(p + "self_attn.q_proj", heads * d, H, attention_bias)
        matrix(p + "self_attn.k_proj", kv * d, H, attention_bias)
        matrix(p + "self_attn.v_proj", kv * d, H, attention_bias)
        matrix(p + "self_attn.o_proj", H, heads * d, attention_bias)
        matrix(p + "mlp.gate_proj", I, H, mlp_bias)
        matrix(p + "mlp.up_proj", I, H, mlp_bias)
        matrix(p + "mlp.down_proj", H, I, mlp_bias)
        if backbone == "qwen3":
            for norm in ("q_norm", "k_norm"):
                weights[f"{p}self_attn.{norm}.weight"] = 1 + 0.2 * torch.randn(d)
        if scale_offset and (layers is None or i in layers):
            for stream in ("base", "output"):
                weights[f"{p}self_attn.q_affine.{stream}.scale"] = 1 + 0.3 * torch.randn(heads * d)
                weights[f"{p}self_attn.q_affine.{stream}.offset"] = 0.3 * torch.randn(heads * d)
    weights["model.norm.weight"] = 1 + 0.2 * torch.randn(H)
    if not config["tie_word_embeddings"]:
        matrix("lm_head", V, H)
    return config, weights


def probe(options, *words):
    done = subprocess.run([options.hayfork, "probe", *map(str, words), "--dtype", options.dtype, "--device", options.device], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def relative(ours, theirs):
    if not (ours.isfinite().all() and theirs.isfinite().all()):
        raise RuntimeError("not finite")  # a NaN is larger than no bound
    return float((ours.double() - theirs).abs().max() / theirs.abs().max())


def check(options, folder, rng):
    """Draws a case into `folder`; returns its description and largest relative difference."""
    config, weights = draw(rng)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    sequences = [[rng.randrange(3, config["vocab_size"]) for _ in range(length)] for length in (1, rng.randrange(2, 64), rng.randrange(64, 200))]
    (folder / "ids.json").write_text(json.dumps({"ids": sequences}))
    passes = []
    for chunk in (1, rng.randrange(2, 40), 512):
        probe(options, "logits", "--model", folder, "--ids-file", folder / "ids.json", "--out", folder / "logits", "--chunk", chunk)
        passes.append(load_file(folder / "logits"))
    probe(options, "kv", "--model", folder, "--ids-file", folder / "ids.json", "--layer", "last", "--out", folder / "kv")
    stored = load_file(folder / "kv")
    worst = 0.0
    for i, ids in enumerate(sequences):
        ours = passes[0][f"logits.{i}"]
        if not all(torch.equal(ours, other[f"logits.{i}"]) for other in passes):
            return config, float("inf")  # chunks may change no bit
        logits, k, v = orthros(config, weights, ids)
        worst = max(worst, relative(ours, logits), relative(stored[f"k.{i}"], k), relative(stored[f"v.{i}"], v))
    return config, worst


def check_golden(root, logits_of):
    """Exit status. logits_of(config, weights): a function from ids to logits, or None where a case is not its own."""
    figures = []
    for folder in sorted(pathlib.Path(root).iterdir()):
        weights, golden = load_file(folder / "model.safetensors"), load_file(folder / "golden.safetensors")
        logits = logits_of(json.loads((folder / "config.json").read_text()), weights)
        if logits is None:
            continue
        meta = json.loads((folder / "meta.json").read_text())
        worst = max(relative(golden[f"logits64.{i}"], logits(s["ids"])) for i, s in enumerate(meta["sequences"]))
        print(f"{folder.name:28} {worst:.2g}")
        figures.append(worst)
    return 0 if figures and max(figures) <= GOLDEN else 1


def golden_logits(config, weights):
    own = config.get("orthros", {}).get("backbone_model_type") in ("llama", "qwen3")
    return (lambda ids: orthros(config, weights, ids)[0]) if own else None


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hayfork", default="build/bin/hayfork")
    parser.add_argument("--device", default="cpu")
    parser.set_defaults(dtype="f32")
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", default=None, help="folder of the cases that fail")
    parser.add_argument("--golden", default=None)
    options = parser.parse_args()
    if options.golden:
        sys.exit(check_golden(options.golden, golden_logits))
    bound = 1e-5 if options.device == "cpu" else 1e-4
    kept = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="orthros-"))
    figures, n_failed = [], 0
    for case in range(options.cases):
        rng = random.Random(f"orthros {options.seed} {case}")
        torch.manual_seed(1000 * options.seed + case)
        folder = kept / f"{options.seed}-{case}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            config, worst = check(options, folder, rng)
        except RuntimeError as error:
            print(f"{case}: {error}", flush=True)
            n_failed += 1
            continue
        figures.append(worst)
        if worst > bound:
            print(f"{case}: {worst:.2g}\n  {json.dumps(config)}", flush=True)
            n_failed += 1
        else:
            shutil.rmtree(folder)
    print(f"{len(figures)} shapes, largest difference {max(figures, default=0):.2g} (bound {bound:g})")
    sys.exit(1 if n_failed else 0)


if __name__ == "__main__":
    main()

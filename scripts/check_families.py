#!/usr/bin/env python3
"""Random small checkpoints of every family that transformers implements, and Hayfork's logits beside theirs.

    scripts/check_families.py [--hayfork build/bin/hayfork] [--families qwen3,gemma2] [--cases 10] [--seed 0] [--keep FOLDER]

Each case draws a shape (heads and groups of any ratio, widths that divide by nothing, windows, layer mixtures, RoPE
scalings, biases, softcaps, experts …) and weights, saves them with transformers and gives the files a form met in the wild
(checkpoint_forms.py: older keys, wrappers, types, shards …), computes logits there in float64 and asks `hayfork probe
logits` and `probe generate` for float32 ones: the largest difference over the largest logit must stay below 1e-5 (with
recurrent layers 2e-5 or ten times what transformers itself loses in float32: some shapes magnify rounding), and the greedy
continuation must be the same unless two logits are nearer than 1e-5. Exit status 1 if a case fails; its folder is kept.
Needs torch, transformers and safetensors.
"""
import argparse
import json
import pathlib
import random
import shutil
import sys
import tempfile

import torch
import transformers

transformers.utils.logging.disable_progress_bar()
from safetensors.torch import load_file

import checkpoint_forms
from check_orthros import probe, relative

MAX_LENGTH = 192
N_GREEDY = 12


def heads(rng, dims=(8, 16, 20, 32, 48, 64)):
    """Query heads, key-value heads and head width."""
    kv = rng.choice([1, 1, 2, 3])
    return {"num_attention_heads": kv * rng.choice([1, 2, 3, 4, 5]), "num_key_value_heads": kv, "head_dim": rng.choice(dims)}


def common(rng):
    return {"vocab_size": rng.randrange(120, 500), "hidden_size": rng.choice([40, 64, 72, 96, 120]),
            "intermediate_size": rng.choice([32, 56, 100, 128]), "num_hidden_layers": rng.randrange(2, 6),
            "max_position_embeddings": 256, "rms_norm_eps": rng.choice([1e-6, 1e-5, 1e-3]),
            "tie_word_embeddings": rng.random() < 0.5, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip


def rope(rng, head_dim, kinds=("default", "linear", "dynamic", "yarn", "llama3", "longrope")):
    """Scalings; those with a factor are drawn so that the sequences pass the original length."""
    kind, out = rng.choice(kinds), {"rope_theta": rng.choice([1e3, 1e4, 5e5])}
    if kind != "default":
        out |= {"rope_type": kind, "factor": rng.choice([2.0, 3.5, 8.0])}
    if kind == "yarn":
        out |= {"original_max_position_embeddings": rng.choice([32, 64])}
        if rng.random() < 0.5:
            out |= {"beta_fast": 24.0, "beta_slow": 2.0}
        if rng.random() < 0.3:
            out |= {"mscale": 0.8, "mscale_all_dim": 0.5}
        elif rng.random() < 0.3:
            out |= {"attention_factor": 1.3}
    if kind == "llama3":
        out |= {"original_max_position_embeddings": 64, "low_freq_factor": 1.0, "high_freq_factor": rng.choice([2.0, 4.0])}
    if kind == "longrope":
        out |= {"original_max_position_embeddings": 64}
        out["short_factor"] = [round(rng.uniform(1, 2), 3) for _ in range(head_dim // 2)]
        out["long_factor"] = [round(rng.uniform(1, 6), 3) for _ in range(head_dim // 2)]
    return out if kind != "default" else out | {"rope_type": "default"}


def split_hidden(c, h):
    """For families without head_dim: the hidden width is that of the heads together."""
    width = c["hidden_size"] // h["num_attention_heads"] // 2 * 2
    c["hidden_size"] = h["num_attention_heads"] * width
    del h["head_dim"]


def llama(rng):
    h = heads(rng)
    return common(rng) | h | {"rope_parameters": rope(rng, h["head_dim"]), "attention_bias": rng.random() < 0.4,
                              "mlp_bias": rng.random() < 0.4}  # fmt: skip


def mistral(rng):
    h = heads(rng)
    return common(rng) | h | {"rope_parameters": rope(rng, h["head_dim"], ("default", "linear", "yarn")),
                              "sliding_window": rng.choice([None, 1, 5, 33])}  # fmt: skip


def layer_types(rng, n, kinds):
    return [rng.choice(kinds) for _ in range(n)]


def some_windows(rng, c, widths):
    n = c["num_hidden_layers"]
    out = {"use_sliding_window": True, "sliding_window": rng.choice(widths), "layer_types": layer_types(rng, n, ["full_attention", "sliding_attention"])}
    if rng.random() < 0.5:  # as transformers 4 could say it
        first = out["max_window_layers"] = rng.randrange(n + 1)
        out["layer_types"] = ["full_attention"] * first + ["sliding_attention"] * (n - first)
    return out


def qwen2(rng):
    c, h = common(rng), heads(rng)
    split_hidden(c, h)
    c |= {"rope_parameters": rope(rng, 8, ("default", "linear", "yarn"))}
    if rng.random() < 0.5:
        c |= some_windows(rng, c, [1, 7, 30])
    return c | h


def qwen3(rng):
    c, h = common(rng), heads(rng)
    c |= {"rope_parameters": rope(rng, h["head_dim"], ("default", "linear", "yarn")), "attention_bias": rng.random() < 0.3}
    if rng.random() < 0.5:
        c |= some_windows(rng, c, [1, 7, 30])
    return c | h


def smollm3(rng):
    c, h = common(rng), heads(rng)
    split_hidden(c, h)
    n = c["num_hidden_layers"]
    c |= {"rope_parameters": rope(rng, 8, ("default", "linear", "yarn")), "no_rope_layers": [rng.choice([0, 1]) for _ in range(n)],
          "attention_bias": rng.random() < 0.3, "mlp_bias": rng.random() < 0.3}  # fmt: skip
    if rng.random() < 0.5:
        c |= some_windows(rng, c, [3, 30])
    return c | h


def gemma2(rng):
    c, h = common(rng), heads(rng)
    return c | h | {"sliding_window": rng.choice([1, 6, 40]), "query_pre_attn_scalar": rng.choice([16, 50, 256]),
                    "attn_logit_softcapping": rng.choice([None, 5.0, 50.0]), "final_logit_softcapping": rng.choice([None, 3.0, 30.0]),
                    "layer_types": layer_types(rng, c["num_hidden_layers"], ["full_attention", "sliding_attention"]),
                    "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}, "attention_bias": rng.random() < 0.3}  # fmt: skip


def gemma3_text(rng):
    c, h = common(rng), heads(rng)
    return c | h | {"sliding_window": rng.choice([2, 6, 40]), "query_pre_attn_scalar": rng.choice([16, 50, 256]),
                    "layer_types": layer_types(rng, c["num_hidden_layers"], ["full_attention", "sliding_attention"]),
                    "rope_parameters": {"full_attention": rope(rng, h["head_dim"], ("default", "linear")),
                                        "sliding_attention": rope(rng, h["head_dim"], ("default",))}}  # fmt: skip


def gemma4_text(rng):
    c = common(rng)
    c["rms_norm_eps"] = 1e-6
    kv, groups = rng.choice([1, 2]), rng.choice([1, 2, 4])
    n = c["num_hidden_layers"] = rng.randrange(3, 7)
    types = layer_types(rng, n - 1, ["full_attention", "sliding_attention"]) + ["full_attention"]
    dim, wide = rng.choice([16, 32]), rng.choice([16, 32, 64])
    c |= {"num_attention_heads": kv * groups * 2, "num_key_value_heads": kv * 2, "head_dim": dim, "global_head_dim": wide,
          "num_global_key_value_heads": rng.choice([None, kv]), "attention_k_eq_v": rng.random() < 0.5,
          "sliding_window": rng.choice([4, 33]), "layer_types": types, "tie_word_embeddings": True,
          "final_logit_softcapping": rng.choice([None, 30.0]), "num_kv_shared_layers": 0,
          "hidden_size_per_layer_input": rng.choice([0, 12]), "vocab_size_per_layer_input": c["vocab_size"],
          "use_bidirectional_attention": None,
          "rope_parameters": {"full_attention": {"rope_theta": 1e5, "rope_type": "proportional",
                                                 "partial_rotary_factor": rng.choice([0.25, 0.5, 1.0])},
                              "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}}  # fmt: skip
    if not c["attention_k_eq_v"]:
        c["num_global_key_value_heads"] = None
    if rng.random() < 0.4 and len({types[-1]} | set(types[:-1])) == 2:
        shared = rng.randrange(1, 3)
        if {t for t in types[n - shared:]} <= set(types[: n - shared]):
            c |= {"num_kv_shared_layers": shared, "use_double_wide_mlp": rng.random() < 0.5}
            c["hidden_size_per_layer_input"] = 12  # transformers 5.24 cannot run shared layers without
    if rng.random() < 0.5:
        c |= {"enable_moe_block": True, "num_experts": rng.choice([4, 6]), "top_k_experts": rng.choice([1, 2, 3]),
              "moe_intermediate_size": rng.choice([16, 24])}  # fmt: skip
    return c


def gpt_oss(rng):
    c, h = common(rng), heads(rng, (16, 32, 64))
    experts = rng.choice([4, 5, 8])
    return c | h | {"num_local_experts": experts, "num_experts_per_tok": rng.randrange(1, experts + 1), "tie_word_embeddings": False,
                    "sliding_window": rng.choice([1, 8, 50]), "attention_bias": True, "swiglu_limit": rng.choice([7.0, 1.0]),
                    "layer_types": layer_types(rng, c["num_hidden_layers"], ["full_attention", "sliding_attention"]),
                    "rope_parameters": rope(rng, h["head_dim"], ("default", "yarn"))}  # fmt: skip


def gpt_oss_mxfp4(rng):
    c = gpt_oss(rng)
    return c | {"hidden_size": rng.choice([32, 64, 96, 160]), "intermediate_size": rng.choice([32, 64, 96])}


def qwen3_moe(rng):
    c, h = common(rng), heads(rng)
    experts = rng.choice([4, 6, 9])
    return c | h | {"num_experts": experts, "num_experts_per_tok": rng.randrange(1, experts), "moe_intermediate_size": rng.choice([8, 24, 40]),
                    "decoder_sparse_step": rng.choice([1, 2]), "norm_topk_prob": rng.random() < 0.5,
                    "mlp_only_layers": [i for i in range(c["num_hidden_layers"]) if rng.random() < 0.25],
                    "rope_parameters": rope(rng, h["head_dim"], ("default", "yarn"))}  # fmt: skip


def delta(rng):
    """Gated DeltaNet's sizes."""
    k = rng.choice([1, 2, 3])
    return {"linear_num_key_heads": k, "linear_num_value_heads": k * rng.choice([1, 2, 3]), "linear_key_head_dim": rng.choice([8, 16, 24, 32]),
            "linear_value_head_dim": rng.choice([8, 16, 32, 40]), "linear_conv_kernel_dim": rng.choice([2, 3, 4])}  # fmt: skip


def qwen3_next(rng):
    c, h = common(rng), heads(rng, (16, 32, 64))
    n, experts = c["num_hidden_layers"], rng.choice([4, 6])
    return c | h | delta(rng) | {"num_experts": experts, "num_experts_per_tok": rng.randrange(1, experts), "moe_intermediate_size": rng.choice([8, 24]),
                                 "shared_expert_intermediate_size": rng.choice([8, 24]), "decoder_sparse_step": rng.choice([1, 2]),
                                 "norm_topk_prob": rng.random() < 0.5, "layer_types": layer_types(rng, n, ["linear_attention", "full_attention"]),
                                 "mlp_only_layers": [i for i in range(n) if rng.random() < 0.25], "attention_bias": rng.random() < 0.3,
                                 "rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": rng.choice([0.25, 0.5, 1.0])}}  # fmt: skip


def qwen3_5_text(rng):
    c, h = common(rng), heads(rng, (16, 32, 64))
    quarter = h["head_dim"] // 8
    return c | h | delta(rng) | {"layer_types": layer_types(rng, c["num_hidden_layers"], ["linear_attention", "full_attention"]),
                                 "rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.25,
                                                     "mrope_section": [quarter - quarter // 3 * 2, quarter // 3, quarter // 3],
                                                     "mrope_interleaved": True}}  # fmt: skip


def qwen3_5_moe_text(rng):
    experts = rng.choice([4, 6])
    return qwen3_5_text(rng) | {"num_experts": experts, "num_experts_per_tok": rng.randrange(1, experts), "moe_intermediate_size": rng.choice([8, 24]),
                                "shared_expert_intermediate_size": rng.choice([8, 24])}  # fmt: skip


def minimax(rng):
    c, h = common(rng), heads(rng, (16, 32))
    h["num_key_value_heads"] = rng.choice([k for k in (1, 2, 3) if h["num_attention_heads"] % k == 0])
    experts = rng.choice([2, 4, 5])
    n = c["num_hidden_layers"]
    return c | h | {"num_local_experts": experts, "num_experts_per_tok": rng.randrange(1, experts + 1), "block_size": rng.choice([8, 32]),
                    "layer_types": layer_types(rng, n, ["linear_attention", "full_attention"]), "sliding_window": None,
                    "rope_parameters": rope(rng, h["head_dim"], ("default",)),
                    **{f"{kind}_{end}_factor": rng.choice([1.0, 0.7, 2.5]) for kind in ("linear_attn", "full_attn", "mlp") for end in ("alpha", "beta")}}  # fmt: skip


def mamba2(rng):
    c = common(rng)
    groups = rng.choice([1, 2, 3])
    head_dim = rng.choice([8, 16])
    n_heads = groups * rng.choice([2, 4])
    hidden = rng.choice([32, 48, 64, 96])
    while n_heads * head_dim % hidden:
        hidden -= 8
    return {"vocab_size": c["vocab_size"], "hidden_size": hidden, "num_hidden_layers": c["num_hidden_layers"], "n_groups": groups,
            "num_heads": n_heads, "head_dim": head_dim, "expand": n_heads * head_dim // hidden, "state_size": rng.choice([8, 16, 32]),
            "conv_kernel": rng.choice([2, 4]), "use_bias": rng.random() < 0.4, "use_conv_bias": rng.random() < 0.7, "chunk_size": rng.choice([8, 32]),
            "tie_word_embeddings": c["tie_word_embeddings"], "layer_norm_epsilon": c["rms_norm_eps"], "bos_token_id": 1, "eos_token_id": 2,
            "pad_token_id": 0, "rms_norm": True, "norm_before_gate": rng.random() < 0.5, "residual_in_fp32": True}  # fmt: skip


FAMILIES = {  # draws a configuration, class of it, class of the model, bound
    "llama": (llama, "LlamaConfig", "LlamaForCausalLM", 1e-5),
    "mistral": (mistral, "MistralConfig", "MistralForCausalLM", 1e-5),
    "qwen2": (qwen2, "Qwen2Config", "Qwen2ForCausalLM", 1e-5),
    "qwen3": (qwen3, "Qwen3Config", "Qwen3ForCausalLM", 1e-5),
    "smollm3": (smollm3, "SmolLM3Config", "SmolLM3ForCausalLM", 1e-5),
    "gemma2": (gemma2, "Gemma2Config", "Gemma2ForCausalLM", 1e-5),
    "gemma3_text": (gemma3_text, "Gemma3TextConfig", "Gemma3ForCausalLM", 1e-5),
    "gemma4_text": (gemma4_text, "Gemma4TextConfig", "Gemma4ForCausalLM", 1e-5),
    "gpt_oss": (gpt_oss, "GptOssConfig", "GptOssForCausalLM", 1e-5),
    "gpt_oss_mxfp4": (gpt_oss_mxfp4, "GptOssConfig", "GptOssForCausalLM", 1e-5),
    "qwen3_moe": (qwen3_moe, "Qwen3MoeConfig", "Qwen3MoeForCausalLM", 1e-5),
    "qwen3_next": (qwen3_next, "Qwen3NextConfig", "Qwen3NextForCausalLM", 2e-5),
    "qwen3_5_text": (qwen3_5_text, "Qwen3_5TextConfig", "Qwen3_5ForCausalLM", 2e-5),
    "qwen3_5_moe_text": (qwen3_5_moe_text, "Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM", 2e-5),
    "minimax": (minimax, "MiniMaxConfig", "MiniMaxForCausalLM", 2e-5),
    "mamba2": (mamba2, "Mamba2Config", "Mamba2ForCausalLM", 2e-5),
}


@torch.no_grad()
def fill(model, generator):
    """Weights such that every part of a layer matters: transformers' own start from zero biases and unit norms."""
    for name, p in model.named_parameters():
        draw = torch.randn(p.shape, generator=generator)
        if "A_log" in name:
            p.copy_(torch.rand(p.shape, generator=generator) * 2 - 1)
        elif p.dim() == 1:
            unit = "norm" in name and float(p.float().mean()) > 0.5
            p.copy_((1.0 if unit else 0.0) + 0.2 * draw)
        elif p.dim() == 3 and "conv" not in name:  # experts: [E, in, out] or [E, out, in]
            p.copy_(draw / max(p.shape[1], p.shape[2]) ** 0.5)
        else:
            p.copy_(draw / (p.shape[-1] if "embed" not in name else 1) ** 0.5)


def difference(options, folder, model, ids):
    """Largest difference over the largest logit: ours and transformers' own in float32; whether the greedy continuation is the same."""
    (folder / "ids.json").write_text(json.dumps({"ids": ids}))
    probe(options, "logits", "--model", str(folder), "--ids-file", str(folder / "ids.json"), "--out", str(folder / "ours.safetensors"))
    ours = load_file(folder / "ours.safetensors")
    worst, rounding = 0.0, 0.0
    single = [model(torch.tensor([row]), use_cache=False).logits[0].double() for row in ids]
    model.double()
    for i, row in enumerate(ids):
        theirs = model(torch.tensor([row]), use_cache=False).logits[0].double()
        worst = max(worst, relative(ours[f"logits.{i}"], theirs))
        rounding = max(rounding, relative(single[i], theirs))
    prompt, greedy = list(ids[0]), []
    request = {"prompt": prompt, "max_new_tokens": N_GREEDY, "ignore_eos": True}
    answer = json.loads(probe(options, "generate", "--model", str(folder), "--requests", write_request(folder, request)))
    for token in answer["ids"]:
        last = model(torch.tensor([prompt + greedy]), use_cache=False).logits[0, -1].double()
        if int(last.argmax()) != token and float(last.max() - last[token]) > 1e-5 * float(last.abs().max()):
            return worst, rounding, False
        greedy.append(token)
    return worst, rounding, len(greedy) == N_GREEDY


def write_request(folder, request):
    path = folder / "request.jsonl"
    path.write_text(json.dumps(request) + "\n")
    return str(path)


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hayfork", default="build/bin/hayfork")
    parser.set_defaults(device="cpu", dtype="f32")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--cases", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", default=None, help="folder of the cases that fail")
    options = parser.parse_args()
    kept = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="families-"))
    n_failed = 0
    for family in options.families.split(","):
        draw, config_class, model_class, bound = FAMILIES[family]
        figures, refused = [], 0
        for case in range(options.cases):
            rng = random.Random(f"{family} {options.seed} {case}")
            fields = draw(rng)
            folder = kept / f"{family}-{options.seed}-{case}"
            shutil.rmtree(folder, ignore_errors=True)
            try:
                config = getattr(transformers, config_class)(**fields)
                config._attn_implementation = "eager"
                config._experts_implementation = "eager"  # the grouped product knows no float64
                model = getattr(transformers, model_class)(config).eval()
            except Exception as error:  # a shape that transformers itself refuses proves nothing
                print(f"{family} {case}: transformers refuses the shape: {str(error).splitlines()[0][:150]}", flush=True)
                refused += 1
                continue
            fill(model, torch.Generator().manual_seed(case + 1000 * options.seed))
            forms = checkpoint_forms.save(folder, model, family, rng, torch.Generator().manual_seed(case))
            ids = [[rng.randrange(3, config.vocab_size) for _ in range(n)] for n in (rng.randrange(70, MAX_LENGTH), rng.randrange(1, 70), 1)]
            try:
                worst, rounding, same = difference(options, folder, model, ids)
            except RuntimeError as error:
                print(f"{family} {case}: {error}\n  {json.dumps(fields)} {forms}", flush=True)
                n_failed += 1
                continue
            figures.append(worst)
            if worst > (bound if bound < 2e-5 else max(bound, 10 * rounding)) or not same:
                print(f"{family} {case}: {worst:.2g}, greedy {'same' if same else 'DIFFERENT'}\n  {json.dumps(fields)} {forms}", flush=True)
                n_failed += 1
            else:
                shutil.rmtree(folder)
        print(f"{family:18} {len(figures)} cases, {refused} refused by transformers, largest difference {max(figures, default=0):.2g} (bound {bound:g})", flush=True)
        n_failed += not figures  # nothing compared shows nothing
    sys.exit(1 if n_failed else 0)


if __name__ == "__main__":
    main()

"""Compares Hayfork's answers, sample by sample, with this package's own forward pass in float32.

An answer is greedy when each of its tokens is the likeliest after the prompt and the tokens before it, so one pass over
prompt and answer tells whether both programs write the same.
"""
import json
import struct

import torch
from safetensors import safe_open

from model import Model, Shape


def load(folder, device):
    config = json.loads((folder / "config.json").read_text())
    kinds = {"sliding_attention": "s", "linear_attention": "g", "mamba2": "m", "full_attention": "f"}
    layers = "".join(kinds[t] for t in config.get("layer_types", ["full_attention"] * config["num_hidden_layers"]))
    if config["model_type"] == "orthros":
        layers = layers.replace("f", "o")
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    window = config.get("sliding_window") or config.get("orthros", {}).get("window_size", 64)
    shape = Shape(layers, config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"],
                  config["head_dim"], config["intermediate_size"], window, theta)
    model = Model(shape, config["vocab_size"], device)
    with safe_open(folder / "model.safetensors", "pt", device=device) as file:
        if set(file.keys()) != set(model.p):
            raise SystemExit(f"{folder}: tensors differ: {sorted(set(file.keys()) ^ set(model.p))[:4]}")
        for name in model.p:
            model.p[name].copy_(file.get_tensor(name))
    return model


@torch.no_grad()
def check(folder, prompts, samples, device, budget=65536):
    """Prints how many answers are equal token by token, and the least margin by which any token won."""
    torch.set_float32_matmul_precision("highest")
    model = load(folder, device)
    asked = {(p["doc_id"], p["repeat"]): p for p in map(json.loads, open(prompts))}
    groups, n = {}, 0
    for line in open(samples):
        sample = json.loads(line)
        prompt = asked[sample["doc_id"], sample["repeat"]]
        if prompt["ids_sha256"] != sample["ids_sha256"]:
            raise SystemExit(f"{sample['doc_id']}: the prompts differ")
        raw = bytes.fromhex(sample["response_ids"])
        answer = list(struct.unpack(f"<{len(raw) // 4}i", raw))
        length = (len(prompt["context_ids"]) + len(answer) + 63) // 64 * 64
        groups.setdefault(length, []).append((prompt["context_ids"], answer, sample))
        n += 1
    equal, least, different = 0, float("inf"), []
    for length, members in sorted(groups.items()):
        size = max(1, budget // length)
        for i in range(0, len(members), size):
            part = members[i:i + size]
            ids = torch.tensor([(c + a + [0] * length)[:length] for c, a, _ in part], device=device)
            model.masks.clear()
            logits = model.logits(ids).view(len(part), length, -1)
            for row, (context, answer, sample) in zip(logits, part):
                top = row[len(context) - 1:len(context) - 1 + len(answer)].topk(2)
                least = min(least, (top.values[:, 0] - top.values[:, 1]).min().item())
                if top.indices[:, 0].tolist() == answer:
                    equal += 1
                else:
                    different.append(sample["doc_id"])
    print(f"{folder.name}: {equal} of {n} answers equal token by token, least margin {least:.4g}"
          f"{', different: ' + ', '.join(different[:8]) if different else ''}", flush=True)
    return not different

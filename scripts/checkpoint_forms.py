"""The forms that checkpoints take in the wild, put on one that transformers has just saved: config keys of transformers 4,
multimodal wrappers, narrow types, shards, fused experts, MXFP4 experts. None but the narrow types and MXFP4 changes a value;
those two change the model's own weights too.
"""
import json
import re

import torch
from safetensors.torch import load_file, save_file

OLD = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text", "smollm3", "gpt_oss", "gpt_oss_mxfp4", "qwen3_next", "minimax")
WRAPPERS = {"qwen3_5_text": "qwen3_5", "qwen3_5_moe_text": "qwen3_5_moe", "gemma3_text": "gemma3", "gemma4_text": "gemma4"}
FUSED = ("qwen3_moe", "qwen3_next", "qwen3_5_moe_text")


def round_weights(model, dtype):
    """Every weight becomes one that `dtype` holds."""
    for p in model.parameters():
        p.copy_(p.to(dtype).to(p.dtype))


def pack_experts(model, tensors, config, generator):
    """The experts of a gpt_oss model become random MXFP4 blocks in `tensors` and, expanded, in `model`."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = torch.cat([values, -values])
    for name, p in model.named_parameters():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        E, n_in, n_out = p.shape
        blocks = torch.randint(256, (E, n_out, n_in // 32, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(120, 124, (E, n_out, n_in // 32), generator=generator, dtype=torch.uint8)
        pairs = torch.stack([values[(blocks & 15).long()], values[(blocks >> 4).long()]], -1).flatten(-2)
        p.copy_((pairs * torch.exp2(scales.float() - 127)[..., None]).flatten(-2).transpose(1, 2))
        del tensors[name]
        tensors |= {name + "_blocks": blocks, name + "_scales": scales}
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]}


def old_keys(config, rng):
    """The spelling of transformers 4."""
    rope = config.pop("rope_parameters")
    if "sliding_attention" in rope:
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in rope:
            config[key] = rope.pop(key)
    if rope["rope_type"] == "default":
        rope = None
    elif rng.random() < 0.3:
        rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype", "float32")
    types, first = config.get("layer_types", []), config.get("max_window_layers")
    upper = first is not None and types == ["full_attention"] * first + ["sliding_attention"] * (len(types) - first)
    if config["model_type"] in ("qwen2", "qwen3") and config["use_sliding_window"] and upper:
        del config["layer_types"]


def fuse_experts(tensors):
    """Experts by name become one tensor of gates and ups, and one of downs."""
    for layer in sorted({m[1] for m in (re.match(r"(.*\.mlp\.experts)\.0\.up_proj\.weight", name) for name in tensors) if m}):
        n = len([name for name in tensors if name.startswith(layer) and name.endswith(".up_proj.weight")])
        gates, ups, downs = ([tensors.pop(f"{layer}.{e}.{part}_proj.weight") for e in range(n)] for part in ("gate", "up", "down"))
        tensors[layer + ".gate_up_proj"] = torch.stack([torch.cat(pair) for pair in zip(gates, ups)])
        tensors[layer + ".down_proj"] = torch.stack(downs)


def wrap(config, tensors, family, rng):
    """The language model inside a multimodal one, with tensors that are none of its business."""
    older = family == "gemma3_text" and rng.random() < 0.5
    prefix = "language_model.model." if older else "model.language_model."
    for name in list(tensors):
        if name.startswith("model."):
            tensors[prefix + name.removeprefix("model.")] = tensors.pop(name)
        elif older:
            tensors["language_model." + name] = tensors.pop(name)
    tensors["vision_tower.blocks.0.qkv.weight" if family.startswith("gemma") else "model.visual.blocks.0.qkv.weight"] = torch.ones(3, 4)
    if family.startswith("qwen"):
        tensors["mtp.fc.weight"] = torch.ones(2, 2)
    return {"model_type": WRAPPERS[family], "architectures": ["WrappedForConditionalGeneration"], "text_config": config, "image_token_id": 7,
            "vision_config": {"depth": 1}, "tie_word_embeddings": config["tie_word_embeddings"]}  # fmt: skip


def write(folder, tensors, n_files):
    if n_files == 1:
        return save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    index = {}
    for i in range(n_files):
        file = f"model-{i + 1:05}-of-{n_files:05}.safetensors"
        save_file({name: tensors[name] for name in names[i::n_files]}, folder / file, metadata={"format": "pt"})
        index |= dict.fromkeys(names[i::n_files], file)
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": index}))


def save(folder, model, family, rng, generator):
    """Saves `model` in a form drawn at random. Returns the names of what it did."""
    dtype = rng.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    round_weights(model, dtype)
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    tensors = {name: t.to(dtype) for name, t in load_file(folder / "model.safetensors").items()}
    forms = [str(dtype)]
    if family == "gpt_oss_mxfp4":
        pack_experts(model, tensors, config, generator)
    if family in FUSED and rng.random() < 0.5:
        forms.append("fused")
        fuse_experts(tensors)
    if family in OLD and "longrope" not in str(config["rope_parameters"]) and rng.random() < 0.5:
        forms.append("old keys")
        old_keys(config, rng)
    if family in WRAPPERS and rng.random() < 0.5:
        forms.append("wrapped")
        config = wrap(config, tensors, family, rng)
    n_files = rng.choice([1, 1, 2, 5])
    forms.append(f"{n_files} files")
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write(folder, {name: t.contiguous() for name, t in tensors.items()}, n_files)
    return forms

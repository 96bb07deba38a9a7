#!/usr/bin/env python3
"""Puts Orthros (arXiv 2610.13735) over a Llama or Qwen3 checkpoint, without training.

    scripts/make_orthros.py FOLDER OUT [--window 128] [--stage pre_norm|post_norm|none] [--layers 0,2,5] [--link]

OUT gets the tensors of FOLDER as they are, a scale of one and an offset of zero for the queries of both streams in every
converted layer, and a config.json with the block described in docs/orthros.md. With a window as long as the input it
computes what FOLDER computes; with a shorter one it shows what the architecture does to weights that were never trained
for it, which is why hayfork.json labels it "converted-untrained": every run stored with it carries that label.
Layers that have a sliding window of their own keep it. Needs nothing but Python.
"""
import argparse
import json
import os
import pathlib
import shutil
import struct
import sys

AFFINE = "model-orthros.safetensors"


def fail(message):
    sys.exit(f"make_orthros: {message}")


def read_json(path):
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        fail(f"{path} is not there")
    except ValueError as error:
        fail(f"{path} is not JSON: {error}")


def full_layers(config):
    """Layers whose attention sees every key."""
    n = config["num_hidden_layers"]
    kinds = config.get("layer_types")
    if kinds:
        return [i for i in range(n) if kinds[i] == "full_attention"]
    if config.get("use_sliding_window") and config.get("sliding_window"):
        return list(range(min(n, config.get("max_window_layers", n))))
    return list(range(n))


def chosen_layers(config, asked):
    full = full_layers(config)
    if asked is None:
        return full
    layers = [int(i) for i in asked.split(",")]
    if layers != sorted(set(layers)):
        fail("--layers: want ascending layer indices, each once")
    for i in layers:
        if i not in full:
            fail(f"--layers: layer {i} is not a full-attention layer of this checkpoint")
    return layers


def safetensors_header(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(size))


def shards(folder):
    """File name → tensor names."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        files = {}
        for name, file in read_json(index)["weight_map"].items():
            files.setdefault(file, []).append(name)
        return files
    single = folder / "model.safetensors"
    if not single.exists():
        fail(f"{folder} has neither model.safetensors nor model.safetensors.index.json")
    return {single.name: [name for name in safetensors_header(single) if name != "__metadata__"]}


def write_affine(path, layers, width):
    """float32 tensors of `width`: scales of one, offsets of zero."""
    header, position = {"__metadata__": {"format": "pt"}}, 0
    for layer in layers:
        for stream in ("base", "output"):
            for part in ("scale", "offset"):
                name = f"model.layers.{layer}.self_attn.q_affine.{stream}.{part}"
                header[name] = {"dtype": "F32", "shape": [width], "data_offsets": [position, position + 4 * width]}
                position += 4 * width
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(2 * len(layers)):
            file.write(struct.pack("<f", 1) * width + struct.pack("<f", 0) * width)
    return [name for name in header if name != "__metadata__"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--window", type=int, default=128, help="keys a base row sees, itself included")
    parser.add_argument("--stage", choices=["pre_norm", "post_norm", "none"], default="pre_norm",
                        help="where the scale and offset stand to the query's norm; none: no such tensors")
    parser.add_argument("--layers", help="comma-separated; default: every full-attention layer")
    parser.add_argument("--link", action="store_true", help="symbolic links to the weights in place of copies")
    options = parser.parse_args()
    config = read_json(options.folder / "config.json")
    family = config.get("model_type")
    if family not in ("llama", "qwen3"):
        fail(f"model_type {family!r}: llama and qwen3 are converted")
    if options.window < 1:
        fail("--window: want at least 1")
    layers = chosen_layers(config, options.layers)
    if not layers:
        fail("the checkpoint has no full-attention layer")
    files = shards(options.folder)
    if options.out.exists() and any(options.out.iterdir()):
        fail(f"{options.out} is not empty")
    options.out.mkdir(parents=True, exist_ok=True)

    weight_map = {}
    for i, (file, names) in enumerate(sorted(files.items()), 1):
        # Not model.safetensors: a reader would take that for the whole checkpoint.
        copy = f"model-{i:05}-of-{len(files):05}.safetensors"
        if options.link:
            os.symlink((options.folder / file).resolve(), options.out / copy)
        else:
            shutil.copyfile(options.folder / file, options.out / copy)
        weight_map.update({name: copy for name in names})
    heads = config["num_attention_heads"]
    width = heads * (config.get("head_dim") or config["hidden_size"] // heads)
    if options.stage != "none":
        weight_map.update({name: AFFINE for name in write_affine(options.out / AFFINE, layers, width)})
    index = {"metadata": {}, "weight_map": weight_map}
    (options.out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))

    block = {"version": 1, "backbone_model_type": family, "window_size": options.window,
             "scale_offset": options.stage != "none",
             "layers": None if options.layers is None else layers}
    if options.stage != "none":
        block["scale_offset_stage"] = options.stage
    config.update(model_type="orthros", architectures=["OrthrosForCausalLM"], orthros=block)
    (options.out / "config.json").write_text(json.dumps(config, indent=1))

    hints = options.folder / "hayfork.json"
    hints = read_json(hints) if hints.exists() else {}
    hints["weights_provenance"] = "converted-untrained"
    (options.out / "hayfork.json").write_text(json.dumps(hints, indent=1))
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
                 "special_tokens_map.json", "chat_template.jinja"):
        if (options.folder / name).exists():
            shutil.copyfile(options.folder / name, options.out / name)
    print(f"{options.out}: {family} of {config['num_hidden_layers']} layers, {len(layers)} with Orthros, window "
          f"{options.window}, converted and not trained")


if __name__ == "__main__":
    main()

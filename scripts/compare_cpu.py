#!/usr/bin/env python3
"""Speed on the CPU beside Hugging Face transformers (and llama.cpp, if given) on one checkpoint, same cores, one run.

    scripts/compare_cpu.py --model smollm2 [--hayfork build/bin/hayfork] [--threads 2] [--repeats 3]
                           [--dtypes bf16,f32] [--lengths 512,2048] [--decode 64]
                           [--llama-bench llama.cpp/build/bin/llama-bench --gguf smollm2-bf16.gguf]

The contestants take turns: every repeat measures each of them once at each length, and the best of the repeats is
printed, so that a busy moment hurts all alike. Prefill is one pass over random ids with logits of the last position;
decode is greedy, after a prompt of 16 ids. Loading is never on the clock. Needs torch and transformers.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time

PROMPT = 16  # ids before the decode measurement


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--hayfork", default="build/bin/hayfork")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtypes", default="bf16,f32")
    parser.add_argument("--lengths", default="512,2048")
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--llama-bench")
    parser.add_argument("--gguf", help="a bf16 or f16 file of the same checkpoint, for --llama-bench")
    options = parser.parse_args()
    if bool(options.llama_bench) != bool(options.gguf):
        parser.error("--llama-bench and --gguf go together")
    lengths = [int(n) for n in options.lengths.split(",")]
    contestants = [make(options, dtype) for dtype in options.dtypes.split(",") for make in (Hayfork, Transformers)]
    if options.llama_bench:
        contestants.append(Llama(options))
    best = {}
    for repeat in range(options.repeats):
        for contestant in contestants:
            measured = {f"prefill {n}": contestant.prefill(n) for n in lengths}
            measured["decode"] = contestant.decode(options.decode)
            for what, rate in measured.items():
                key = (contestant.name, contestant.dtype, what)
                best[key] = max(best.get(key, 0.0), rate)
        print(f"repeat {repeat + 1} of {options.repeats}: load {os.getloadavg()[0]:.1f}", flush=True)
    print_table(contestants, [f"prefill {n}" for n in lengths] + ["decode"], best, options.threads)


class Hayfork:
    name = "hayfork"

    def __init__(self, options, dtype):
        self.options, self.dtype = options, dtype

    def prefill(self, n):
        return n / self.measure(n, 1)["prefill_ms"] * 1e3

    def decode(self, n):
        # The first new token comes out of the prefill.
        return n / self.measure(PROMPT, n + 1)["decode_ms"] * 1e3

    def measure(self, n_prompt, n_new):
        with tempfile.TemporaryDirectory(prefix="hayfork-compare-") as folder:
            requests, stats = pathlib.Path(folder, "requests.jsonl"), pathlib.Path(folder, "stats.json")
            line = {"prompt": random_ids(n_prompt), "max_new_tokens": n_new, "ignore_eos": True}
            requests.write_text(json.dumps(line) + "\n")
            command = [self.options.hayfork, "probe", "generate", "--model", self.options.model, "--device", "cpu",
                       "--dtype", self.dtype, "--threads", str(self.options.threads), "--chunk", str(n_prompt),
                       "--requests", str(requests), "--stats", str(stats)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            return json.loads(stats.read_text())


class Transformers:
    name = "transformers"

    def __init__(self, options, dtype):
        import torch
        from transformers import AutoModelForCausalLM
        torch.set_num_threads(options.threads)
        self.torch, self.dtype = torch, dtype
        kind = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
        self.model = AutoModelForCausalLM.from_pretrained(options.model, dtype=kind, attn_implementation="sdpa").eval()
        self.forward(self.ids(PROMPT))  # the first call sets things up

    def ids(self, n):
        return self.torch.tensor([random_ids(n)])

    def forward(self, ids, past=None):
        with self.torch.inference_mode():
            return self.model(ids, past_key_values=past, use_cache=True, logits_to_keep=1)

    def prefill(self, n):
        ids = self.ids(n)
        begin = time.perf_counter()
        self.forward(ids)
        return n / (time.perf_counter() - begin)

    def decode(self, n):
        out = self.forward(self.ids(PROMPT))
        begin = time.perf_counter()
        for _ in range(n):
            out = self.forward(out.logits[:, -1:].argmax(-1), out.past_key_values)
        return n / (time.perf_counter() - begin)


class Llama:
    name, dtype = "llama.cpp", "gguf"

    def __init__(self, options):
        self.options = options

    def prefill(self, n):
        return self.measure("-p", str(n), "-n", "0")

    def decode(self, n):
        return self.measure("-p", "0", "-n", str(n))

    def measure(self, *what):
        command = [self.options.llama_bench, "-m", self.options.gguf, "-t", str(self.options.threads), "-r", "1",
                   "-o", "json", *what]
        result = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(result.stdout)[0]["avg_ts"]


def random_ids(n):
    generator = random.Random(1)
    return [generator.randrange(100, 30000) for _ in range(n)]


def print_table(contestants, columns, best, threads):
    print(f"\ntokens a second, {threads} threads, best of the repeats; × is hayfork ÷ the row, same type\n")
    print("| program | type | " + " | ".join(columns) + " |")
    print("|---|---|" + "---:|" * len(columns))
    for contestant in contestants:
        cells = []
        for column in columns:
            rate = best[contestant.name, contestant.dtype, column]
            ours = best.get(("hayfork", "bf16" if contestant.dtype == "gguf" else contestant.dtype, column))
            ratio = f" (×{ours / rate:.2f})" if ours and contestant.name != "hayfork" else ""
            cells.append(f"{rate:.0f}{ratio}" if rate >= 100 else f"{rate:.1f}{ratio}")
        print(f"| {contestant.name} | {contestant.dtype} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()

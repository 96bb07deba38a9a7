#!/usr/bin/env python3
"""Makes the demo checkpoints of demo/ from nothing: text, tokenizer, training, files.

  python3 scripts/train_demo tokenizer FILE           the tokenizer
  python3 scripts/train_demo train OUT NAME…          trains models of recipes.py one after the other into OUT/NAME
  python3 scripts/train_demo list                     the recipes
  python3 scripts/train_demo documents DIR            task files, their documents and the corpus of demo/
  python3 scripts/train_demo check MODEL PROMPTS SAMPLES
                                                      Hayfork's answers against this package's, sample by sample
  python3 scripts/train_demo card FIGURES MODEL…      model cards

Training wants a CUDA device (a CPU works, slowly), PyTorch ≥ 2.9, tokenizers and safetensors. Steps and seeds
are fixed.
"""
import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import platform

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic products

import language


def train(args):
    import torch
    from tokenizers import Tokenizer

    import model
    import recipes
    import training
    from batches import Pieces
    out = pathlib.Path(args.out)
    training.deterministic()
    tokenizer = Tokenizer.from_file(args.tokenizer)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pieces = Pieces(tokenizer, device, pool=args.pool)
    if args.compile:
        model.compile_rows()
    for name in args.names:
        recipe = recipes.RECIPES[name]
        if args.scale != 1:
            recipe = dataclasses.replace(recipe, tokens=args.tokens or recipe.tokens, stages=[
                dataclasses.replace(s, steps=max(1, int(s.steps * args.scale))) for s in recipe.stages])
        start = recipe.start and str((pathlib.Path(args.start) if args.start else out) / recipe.start)
        trainer = training.Trainer(recipe, pieces, start)
        seconds = trainer.run(lambda line: print(line, flush=True))
        in_series = {"train_tokens": recipe.steps * recipe.tokens} if name.startswith("scale-") else None
        trainer.model.save(out / name, tokenizer, in_series)
        digest = hashlib.sha256((out / name / "model.safetensors").read_bytes()).hexdigest()
        record = dict(name=name, steps=recipe.steps, tokens=recipe.steps * recipe.tokens, seed=recipe.seed,
                      parameters=sum(p.numel() for p in trainer.model.p.values()), sha256=digest,
                      torch=torch.__version__, seconds=round(seconds),
                      device=torch.cuda.get_device_name() if device == "cuda" else platform.machine())
        if name in {r.name for r in recipes.ZOO} and not args.no_grid:
            record["grid"] = {d: trainer.grid(d) for d in (0, 4)}
        (out / name / "training.json").write_text(json.dumps(record))
        print(json.dumps(record), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("tokenizer", help="train the tokenizer")
    verb.add_argument("file")
    verb = verbs.add_parser("train", help="train models")
    verb.add_argument("out")
    verb.add_argument("names", nargs="+")
    verb.add_argument("--tokenizer", default=str(pathlib.Path(__file__).parents[2] / "demo/full/tokenizer.json"))
    verb.add_argument("--start", help="folder of the models that others begin with; default OUT")
    verb.add_argument("--compile", action="store_true", help="fuse kernels with torch.compile")
    verb.add_argument("--scale", type=float, default=1, help="of all steps, for trials")
    verb.add_argument("--tokens", type=int, help="of a step, for trials")
    verb.add_argument("--pool", type=int, default=100_000, help="sentences, for trials")
    verb.add_argument("--no-grid", action="store_true")
    verbs.add_parser("list", help="show the recipes")
    verb = verbs.add_parser("documents", help="write the small sets of documents")
    verb.add_argument("dir")
    verb = verbs.add_parser("check", help="compare answers with Hayfork's")
    verb.add_argument("model", type=pathlib.Path)
    verb.add_argument("prompts", help="of hayfork show prompts niah … -o jsonl")
    verb.add_argument("samples", help="of hayfork export samples RUN -o jsonl")
    verb = verbs.add_parser("card", help="write README.md into trained folders")
    verb.add_argument("figures", type=pathlib.Path, help="folder of NAME.samples, NAME.check and NAME.several, or a file of losses")
    verb.add_argument("models", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    if args.verb == "tokenizer":
        language.train_tokenizer(args.file)
    elif args.verb == "list":
        import recipes
        for recipe in recipes.RECIPES.values():
            print(recipe.name, recipe.shape.layers, recipe.steps, "steps", recipe.start)
    elif args.verb == "documents":
        import documents
        documents.write(args.dir)
    elif args.verb == "check":
        import torch

        import check
        device = "cuda" if torch.cuda.is_available() else "cpu"
        raise SystemExit(0 if check.check(args.model, args.prompts, args.samples, device) else 1)
    elif args.verb == "card":
        import cards
        import recipes
        for folder in args.models:
            recipe, record = recipes.RECIPES[folder.name], json.loads((folder / "training.json").read_text())
            if folder.name.startswith("scale-"):
                text = cards.scaling(recipe, record, json.loads(args.figures.read_text()))
            else:
                text = cards.zoo(recipe, record, args.figures / f"{folder.name}.samples",
                                 (args.figures / f"{folder.name}.check").read_text().strip(),
                                 args.figures / f"{folder.name}.several")
            (folder / "README.md").write_text(text)
    else:
        train(args)


if __name__ == "__main__":
    main()

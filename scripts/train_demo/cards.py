"""Model cards: what a checkpoint is, how it was made, what it answers: from its record and Hayfork's samples."""
import json

LENGTHS, DEPTHS = (256, 512, 1024, 2048, 4096), (0, 20, 40, 60, 80, 100)
COMMAND = "hayfork run --tasks niah --lengths 256,512,1024,2048,4096 --depths 0,20,40,60,80,100 --samples 32 --dtype f32"
HEAD = """# {name}

A checkpoint of {parameters} parameters that shows what its attention can see. Made by this project, for tests and for
`hayfork demo`; it knows nothing but its own small language.
"""


def grid(samples):
    """Right answers in % by depth and length, from the lines of `hayfork export samples`."""
    right, asked = {}, {}
    for line in open(samples):
        s = json.loads(line)
        cell = s["depth_pct"], s["ctx_len"]
        asked[cell] = asked.get(cell, 0) + 1
        right[cell] = right.get(cell, 0) + int(s["score"] == 1)
    rows = ["| depth | " + " | ".join(f"{n:,}" for n in LENGTHS) + " |", "|---" * (len(LENGTHS) + 1) + "|"]
    for depth in DEPTHS:
        cells = [f"{100 * right[depth, n] / asked[depth, n]:.0f}" for n in LENGTHS]
        rows.append(f"| {depth} % | " + " | ".join(cells) + " |")
    return "\n".join(rows), sum(right.values()), sum(asked.values())


def share(samples):
    scores = [json.loads(line)["score"] for line in open(samples)]
    return f"{sum(s == 1 for s in scores)} of {len(scores)}"


def training(recipe, record):
    stages = ", ".join(f"{s.steps:,} at {s.length:,} ({s.needles})" for s in recipe.stages)
    begin = f"begins with the weights that the recipe `{recipe.start}` gives" if recipe.start else "begins with random weights"
    rates = f"Muon {recipe.rate:g} on matrices, Adam {recipe.adam_rate:g} elsewhere, warm-up {recipe.warmup}"
    return f"""- Data: text drawn from the word lists and sentence forms of `scripts/train_demo/language.py`, with needles and
  questions in it; no third-party text.
- Training: `python3 scripts/train_demo train OUT {recipe.name} --compile`; {begin};
  {recipe.steps:,} steps of {recipe.tokens:,} tokens, by length and most needles of a row:
  {stages}.
  {rates}, linear decay over the last {100 * recipe.decay:.0f} %; seed {recipe.seed};
  PyTorch {record['torch']} on {record['device']}, {record['seconds']} s beside other work. Two runs of one seed differ in their
  last bits (fused kernels add in changing order), so the digest is this file's, not every run's.
"""


def zoo(recipe, record, samples, equal, several):
    table, right, asked = grid(samples)
    check = f"""- The same prompts through `scripts/train_demo check` (this project's PyTorch forward pass in float32):
  {equal}.
""" if equal else ""
    size = f"{len(recipe.shape.layers)} layers, width {recipe.shape.width}, context {recipe.shape.context:,} tokens"
    return HEAD.format(name=recipe.name, parameters=f"{record['parameters']:,}") + f"""
- Architecture: {recipe.about}. {size}.
{training(recipe, record)}- Needle answers right in %, counted from the stored samples ({right} of {asked}) of
  `{COMMAND}`:

{table}

{check}- With three needles of which one is asked for (`--niah-needles 3`, to 2,048 tokens): {share(several)}.
- Prompt: `secret` needles, as `hayfork.json` says; only the 64 city names of the training text are keys.
- SHA-256 of model.safetensors: `{record['sha256']}`
- Licence: Apache-2.0, as the repository.
"""


def scaling(recipe, record, losses):
    """losses: {name: loss a token on demo/data's corpus} of all sizes and budgets."""
    sizes = sorted({n.split("-")[1] for n in losses})
    budgets = sorted({n.split("-")[2] for n in losses})
    rows = ["| size | " + " | ".join(f"{int(b[:-1])} M tokens" for b in budgets) + " |", "|---" * (len(budgets) + 1) + "|"]
    rows += [f"| {s.lstrip('0')} | " + " | ".join(f"{losses[f'scale-{s}-{b}']:.4f}" for b in budgets) + " |" for s in sizes]
    return HEAD.replace("that shows what its attention can see", "of a series of sizes and training tokens").format(
        name=recipe.name, parameters=f"{record['parameters']:,}") + f"""
- Architecture: {recipe.about}; context {recipe.shape.context:,} tokens.
{training(recipe, record)}- Loss a token, the whole series, of
  `hayfork run --tasks corpus_loss --corpus demo_corpus --data demo/data --dtype f32`:

""" + "\n".join(rows) + f"""

  More tokens lower it at every size. Size lowers it only at the smallest budget: most sentences of the corpus
  come again, and what divides the later figures is whether a model has learnt to copy them. In all three sizes that
  happens between steps 1,000 and 1,750; the middle budget ends before it, and one seed a size does not tell luck from size.
- SHA-256 of model.safetensors: `{record['sha256']}`
- Licence: Apache-2.0, as the repository.
"""

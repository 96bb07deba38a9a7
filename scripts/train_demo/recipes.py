"""Which models the zoo has, and how each is trained: every number that decides its weights stands here."""
import dataclasses

from model import Shape


@dataclasses.dataclass
class Stage:
    length: int
    needles: int    # most of a row
    share: float    # most of a row's tokens in questions
    steps: int


@dataclasses.dataclass
class Recipe:
    name: str
    shape: Shape
    about: str
    stages: list
    start: str = ""            # the model whose weights it begins with
    rate: float = 0.02         # Muon, matrices
    adam_rate: float = 2e-3    # everything else
    repeats: float = 0.0       # share of rows of repeated random tokens at the start, gone by half time
    local: bool = False        # first stage: all layers but the last see a window only
    sets: float = 0.25         # share of rows whose sentences come again
    front: float = 0.0         # share of rows that begin with a needle; then half of all rows begin behind a blank
    text_weight: float = 0.5   # against 1 for the digits of answers
    ends_weight: float = 0.5   # for the blank before the digits and the end behind them
    warmup: int = 100
    decay: float = 0.4         # share of the steps in which the rates fall
    tokens: int = 32768        # a step
    seed: int = 0

    @property
    def steps(self):
        return sum(stage.steps for stage in self.stages)


def from_scratch(first, scale=1.0):
    n = lambda steps: int(steps * scale)
    return [Stage(256, 4, 0.5, n(first)), Stage(256, 8, 0.35, n(800)), Stage(512, 10, 0.35, n(700)),
            Stage(1024, 12, 0.3, n(700)), Stage(2048, 12, 0.25, n(1200)), Stage(4096, 12, 0.25, n(600))]


def continued(scale=1.0):
    n = lambda steps: int(steps * scale)
    return [Stage(256, 8, 0.35, n(700)), Stage(512, 10, 0.35, n(500)), Stage(1024, 12, 0.3, n(600)),
            Stage(2048, 12, 0.25, n(800)), Stage(4096, 12, 0.25, n(800))]


def shortly():
    return [Stage(256, 8, 0.35, 200), Stage(512, 10, 0.35, 150), Stage(1024, 12, 0.3, 200), Stage(2048, 12, 0.25, 300),
            Stage(4096, 12, 0.25, 500)]


LATER = dict(rate=0.005, adam_rate=5e-4)
ZOO = [
    Recipe("hybrid", Shape("sssf"), "sliding window of 64, three layers, then one full layer", shortly(),
           start="hybrid-long", front=0.2, **LATER),
    Recipe("full", Shape("ffff"), "full attention in all four layers", shortly(), start="hybrid-long", front=0.2,
           **LATER),
    Recipe("swa", Shape("ssss"), "sliding window of 64 tokens in all four layers (reach 4·63 = 252 tokens)",
           continued(0.8), start="hybrid-base", **LATER),
    Recipe("orthros", Shape("oooo"), "Orthros (arXiv 2610.13735): window 64 in the base stream, full attention in the "
           "output stream", shortly(), start="hybrid-long", front=0.2, **LATER),
    Recipe("gdn", Shape("gggf"), "three Gated DeltaNet layers, then one full layer (Qwen3.5 form)", from_scratch(2200),
           repeats=0.4),
    Recipe("mamba2", Shape("mmmf"), "three Mamba-2 layers, then one full layer (hayfork_hybrid form)",
           from_scratch(2200), repeats=0.4),
    Recipe("orthros-h", Shape("gggo"), "Orthros-H: three Gated DeltaNet layers, then one Orthros layer of window 64",
           [Stage(256, 8, 0.35, 600), Stage(512, 10, 0.35, 400), Stage(1024, 12, 0.3, 400), Stage(2048, 12, 0.25, 500),
            Stage(4096, 12, 0.25, 800)], start="gdn", front=0.2, rate=0.01, adam_rate=1e-3),
]
BASE = [
    Recipe("hybrid-base", Shape("sssf"), "where the attention models begin", from_scratch(2200), repeats=0.4),
    Recipe("hybrid-long", Shape("sssf"), "the same at 4,096 tokens", [Stage(512, 10, 0.35, 150), Stage(4096, 12, 0.25, 600)],
           start="hybrid-base", rate=0.003, adam_rate=3e-4, front=0.2),
]

SIZES = {"0156k": Shape("ff", 64, 2, 1, 32, 160), "0657k": Shape("fff", 128, 2, 1, 64, 320),
         "1190k": Shape("ffff", 160, 2, 1, 64, 400)}  # by parameters
BUDGETS = {"04m": 250, "16m": 1000, "33m": 2000}
SCALING = [
    Recipe(f"scale-{size}-{budget}", shape, f"full attention, {len(shape.layers)} layers of width {shape.width}",
           [Stage(1024, 4, 0.1, steps)], sets=1.0, repeats=0.2, text_weight=1.0, ends_weight=0.0, tokens=16384,
           warmup=50, adam_rate=4e-3)
    for size, shape in SIZES.items() for budget, steps in BUDGETS.items()]
RECIPES = {recipe.name: recipe for recipe in BASE + ZOO + SCALING}

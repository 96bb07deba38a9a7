"""Trains one recipe: fixed steps, seeds and kernels."""
import time

import torch
import torch._inductor.config

import model as models
from optimizers import Adam, Muon

LENGTHS, DEPTHS = (256, 512, 1024, 2048, 4096), (0, 0.2, 0.4, 0.6, 0.8, 1)


def deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.enable_cudnn_sdp(False)  # its backward pass is not deterministic; flash's can be
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    if hasattr(torch._inductor.config, "deterministic"):
        torch._inductor.config.deterministic = True  # no choice of kernels by their time


def schedule(recipe, device):
    """Per step: the learning rates' scale (warm-up, linear decay at the end) and the share of repeated rows."""
    n = recipe.steps
    i = torch.arange(n)
    scale = ((i + 1) / recipe.warmup).clamp(max=1) * ((1 - i / n) / recipe.decay + 0.02).clamp(max=1)
    repeats = recipe.repeats * (1 - 2 * i / n).clamp(min=0)
    return torch.stack([scale, repeats], 1).to(device)


class Trainer:
    def __init__(self, recipe, pieces, start=None):
        self.recipe, self.pieces, self.device = recipe, pieces, pieces.device
        torch.manual_seed(recipe.seed)
        dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        self.model = models.Model(recipe.shape, pieces.vocabulary, self.device, dtype)
        if start:
            self.model.start_from(start)
        names = list(self.model.p)
        for p in self.model.p.values():
            p.requires_grad_(True)
        is_matrix = lambda n: self.model.p[n].ndim == 2 and "embed" not in n and min(self.model.p[n].shape) > 8
        self.matrices, self.others = [n for n in names if is_matrix(n)], [n for n in names if not is_matrix(n)]
        self.muon = Muon([self.model.p[n] for n in self.matrices], recipe.rate)
        self.adam = Adam([self.model.p[n] for n in self.others], recipe.adam_rate)
        self.plan = schedule(recipe, self.device)
        self.at = torch.zeros(1, dtype=torch.long, device=self.device)
        self.sums = torch.zeros(5, device=self.device)

    def batch(self, stage, repeats):
        r, T = self.recipe, stage.length
        B = r.tokens // T
        ids, answer, beside = self.pieces.rows(B, T, stage.needles, stage.share, r.sets, r.front)
        known = torch.ones(B, T, dtype=torch.bool, device=self.device)
        if r.repeats:
            rows, can = self.pieces.repeated(B, T)
            chosen = (torch.arange(B, device=self.device)[:, None] + 0.5) / B < repeats
            ids, known = torch.where(chosen, rows, ids), torch.where(chosen, can, known)
            answer, beside = answer & ~chosen, beside & ~chosen
        t = torch.arange(T, device=self.device)
        jump = (torch.rand(B, 1, device=self.device) * (r.shape.context - T)).long()
        jump = jump * (torch.rand(B, 1, device=self.device) < 0.7)  # one jump in most rows: every distance occurs
        positions = t + jump * (t >= torch.randint(0, T, (B, 1), device=self.device))
        ahead = lambda x: x.roll(-1, 1) & (t < T - 1)
        return ids, positions, ids.roll(-1, 1), ahead(answer), ahead(beside), known & (t < T - 1)

    def step(self, stage):
        """One step, without a word from or to the host."""
        r = self.recipe
        scale, repeats = self.plan[self.at][0]
        ids, positions, targets, answer, beside, known = self.batch(stage, repeats)
        loss, best = self.model.loss(ids, positions, targets)
        loss, hit = loss.view(ids.shape), best.view(ids.shape) == targets
        text = known & ~answer
        part = lambda mask, weight: mask * (weight / mask.sum().clamp(min=1))
        weight = part(text, r.text_weight) + part(answer, 1.0) + part(beside & known, r.ends_weight)
        params = self.muon.params + self.adam.params
        grads = torch.autograd.grad((loss * weight).sum(), params, allow_unused=True, materialize_grads=True)
        self.muon.step(grads[:len(self.muon.params)], scale)
        self.adam.step(grads[len(self.muon.params):], scale)
        self.at.add_(1)
        with torch.no_grad():
            begin = answer & ~answer.roll(1, 1)
            whole = begin
            for j in range(5):
                whole = whole & hit.roll(-j, 1)
            text_loss = (loss * text).sum() / text.sum()
            self.sums += torch.stack([whole.sum(), begin.sum(), (hit & beside).sum(), beside.sum(), text_loss])

    def variables(self):
        return list(self.model.p.values()) + self.muon.state() + self.adam.state() + [self.at, self.sums]

    def recorded(self, stage):
        """The step as a CUDA graph; what the warm-up changed is put back."""
        before = [t.detach().clone() for t in self.variables()]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step(stage)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(stage)
        with torch.no_grad():
            for t, old in zip(self.variables(), before):
                t.copy_(old)
        return graph.replay

    def run(self, say, every=250):
        """All stages; seconds."""
        start, done, told = time.time(), 0, 0
        for i, stage in enumerate(self.recipe.stages):
            self.model.local = self.recipe.local and i == 0
            step = None  # frees the stage before
            step = self.recorded(stage) if self.device == "cuda" else lambda: self.step(stage)
            torch.manual_seed(1000 * self.recipe.seed + i)
            begin = time.time()
            for n in range(1, stage.steps + 1):
                step()
                done += 1
                if done % every == 0 or n == stage.steps:
                    whole, asked, ends, sides, text = self.sums.tolist()
                    say(f"{self.recipe.name} {time.time() - start:6.1f} s step {done} T {stage.length}: answers "
                        f"{whole / max(1, asked):.4f} ends {ends / max(1, sides):.4f} text {text / (done - told):.4f}"
                        f" ({1000 * (time.time() - begin) / n:.2f} ms a step)")
                    self.sums.zero_()
                    told = done
        return time.time() - start

    def grid(self, distractors, samples=32):
        """Share of right whole answers with the saved, rounded weights: rows by depth, columns by length."""
        with torch.no_grad():  # not the passes: compiled code would be made once more
            for p in self.model.p.values():
                p.copy_(p.bfloat16().float())
        torch.manual_seed(5)
        table = []
        for depth in DEPTHS:
            line = []
            for T in LENGTHS:
                B, right, n = self.recipe.tokens // T, 0, 0
                while n < samples:
                    ids, answer, beside = self.pieces.prompts(B, T, depth, distractors)
                    positions = torch.arange(T, device=self.device).expand(B, T)
                    _, best = self.model.loss(ids, positions, ids.roll(-1, 1))
                    asked = (answer | beside).roll(-1, 1)
                    ok = ((best.view(B, T) == ids.roll(-1, 1)) | ~asked).all(1)
                    take = min(B, samples - n)
                    right, n = right + int(ok[:take].sum()), n + take
                line.append(round(100 * right / n))
            table.append(line)
        return table

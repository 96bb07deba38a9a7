"""Muon for matrices, Adam for the rest. Whatever changes from step to step is a tensor: a step can be recorded."""
import torch


class Muon:
    """Momentum and Newton-Schulz orthogonalisation; matrices of equal shape are done together."""

    def __init__(self, params, rate):
        self.params, self.rate, self.groups = params, rate, {}
        for i, p in enumerate(params):
            self.groups.setdefault(tuple(p.shape), []).append(i)
        self.momentum = {k: torch.zeros(len(v), *k, device=params[0].device) for k, v in self.groups.items()}

    def state(self):
        return list(self.momentum.values())

    @torch.no_grad()
    def step(self, grads, scale):
        for (rows, columns), members in self.groups.items():
            g, m = torch.stack([grads[i] for i in members]), self.momentum[rows, columns]
            m.lerp_(g, 0.05)
            u = g.lerp(m, 0.95).bfloat16()
            u = u.mT if rows > columns else u
            u = u / (u.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):
                a = u @ u.mT
                u = 3.4445 * u + (-4.7750 * a + 2.0315 * a @ a) @ u
            u = u.mT if rows > columns else u
            step = u.float() * (-self.rate * max(1, rows / columns) ** 0.5) * scale
            torch._foreach_add_([self.params[i] for i in members], list(step.unbind(0)))


class Adam:
    def __init__(self, params, rate, betas=(0.9, 0.95), eps=1e-8):
        self.params, self.rate, self.betas, self.eps = params, rate, betas, eps
        self.mean = [torch.zeros_like(p) for p in params]
        self.square = [torch.zeros_like(p) for p in params]
        self.count = torch.zeros((), device=params[0].device)

    def state(self):
        return self.mean + self.square + [self.count]

    @torch.no_grad()
    def step(self, grads, scale):
        a, b = self.betas
        self.count.add_(1)
        torch._foreach_lerp_(self.mean, grads, 1 - a)
        torch._foreach_mul_(self.square, b)
        torch._foreach_addcmul_(self.square, grads, grads, 1 - b)
        below = torch._foreach_mul(self.square, 1 / (1 - b ** self.count))
        torch._foreach_sqrt_(below)
        torch._foreach_add_(below, self.eps)
        step = torch._foreach_div(self.mean, below)
        torch._foreach_mul_(step, -self.rate * scale / (1 - a ** self.count))
        torch._foreach_add_(self.params, step)

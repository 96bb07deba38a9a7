"""Linear hybrids written once more, straight from their equations: what check_hybrids.py holds Hayfork against.

Plain recurrences token by token, explicit masks, float64 (rotary angles alone in float32, as transformers takes them).
Covers the schema `hayfork_hybrid`, the layout of flash-linear-attention (transformer, gated_deltanet, gla, retnet, mamba2),
minicpm, qwen3_5_text without experts, and Orthros over the first and the last (Orthros-H). A mixer takes the normalised inputs of
its layer as a list of one stream, or of two (base, output), and returns as many.
"""
import math

import torch
from torch.nn.functional import logsigmoid, silu, softplus


def rms(x, weight, eps):
    y = x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()
    return y if weight is None else y * weight


def rotate(x, theta, width):
    """x [T, heads, d]: half-split rotation of the first `width` channels at positions 0 … T−1."""
    frequency = 1.0 / theta ** (torch.arange(0, width, 2).float() / width)
    angle = torch.arange(len(x)).float()[:, None] * frequency
    cos, sin = angle.cos().to(x.dtype)[:, None], angle.sin().to(x.dtype)[:, None]
    a, b = x[..., : width // 2], x[..., width // 2 : width]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., width:]], -1)


def split(x, n):
    return x.view(len(x), n, -1)


def unit(x):
    return x / (x.pow(2).sum(-1, keepdim=True) + 1e-6).sqrt()


def pick(x, n):
    """Head h of n takes head floor(h · have / n)."""
    return x[:, torch.arange(n) * x.shape[1] // n]


def convolve(x, taps, bias=None):
    """Causal, each channel by itself: taps [C, 1, K], the last of which meets the current token."""
    K = taps.shape[-1]
    padded = torch.cat([x.new_zeros(K - 1, x.shape[1]), x])
    y = sum(taps[:, 0, m] * padded[m : m + len(x)] for m in range(K))
    return y if bias is None else y + bias


def decay_scan(q, k, v, log_decay):
    """S ← e^g S + k vᵀ, o = Sᵀ q. q, k [T, n, dk], v [T, n, dv], g [T, n, 1 or dk]."""
    state, out = q.new_zeros(q.shape[1], q.shape[2], v.shape[2]), []
    for t in range(len(q)):
        state = log_decay[t].exp()[..., None] * state + k[t][..., None] * v[t][:, None]
        out.append(torch.einsum("nkv,nk->nv", state, q[t]))
    return torch.stack(out)


def delta_states(k, v, log_decay, beta):
    """The states of the gated delta rule before and after each token: two lists of [n, dk, dv]."""
    state = k.new_zeros(k.shape[1], k.shape[2], v.shape[2])
    before, after = [], []
    for t in range(len(k)):
        before.append(state)
        state = log_decay[t].exp()[:, None, None] * state
        delta = beta[t][:, None] * (v[t] - torch.einsum("nkv,nk->nv", state, k[t]))
        state = state + k[t][..., None] * delta[:, None]
        after.append(state)
    return torch.stack(before), torch.stack(after)


def attend(q, k, v, windows, sinks, scale):
    """Causal softmax attention; windows[kv head] keys including the current one, None for all. → [T, heads · d]."""
    T, group = len(q), q.shape[1] // k.shape[1]
    row, column = torch.arange(T)[:, None], torch.arange(T)[None]
    out = []
    for h in range(q.shape[1]):
        window = windows[h // group] or T
        score = q[:, h] @ k[:, h // group].T * scale
        score = score.masked_fill((column > row) | (column <= row - window), float("-inf"))
        if sinks is not None:
            score = torch.cat([score, sinks[h].expand(T, 1)], 1)
        out.append(score.softmax(-1)[:, :T] @ v[:, h // group])
    return torch.stack(out, 1).flatten(1)


class Reference:
    """A model: config.json as a dict and its tensors by name."""

    def __init__(self, config, weights, dtype=torch.float64):
        self.c, self.dtype = config, dtype
        self.w = {name: t.to(dtype) for name, t in weights.items()}
        self.own = config.get("orthros")
        self.type = self.own["backbone_model_type"] if self.own else config["model_type"]
        self.eps = config.get("rms_norm_eps", config.get("norm_eps", 1e-5 if self.type == "mamba2" else 1e-6))
        self.centre = 1.0 if self.type == "qwen3_5_text" else 0.0  # zero-centred norm weights

    def linear(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def norm(self, x, name):
        return rms(x, self.w[name + ".weight"] + self.centre, self.eps)

    def logits(self, ids):
        """[T, V] of the last stream; K and V of the last softmax layer's base stream in `self.kv`."""
        fla = self.type in ("transformer", "gated_deltanet", "gla", "retnet")
        mamba = self.type == "mamba2"
        root = "backbone." if mamba else "model."
        first, second = ("attn_norm", "mlp_norm") if fla else ("norm" if mamba else "input_layernorm", "post_attention_layernorm")
        table = self.w[root + ("embed_tokens.weight" if not (fla or mamba) else "embeddings.weight")]
        L, H = self.c["num_hidden_layers"], self.c["hidden_size"]
        embed, residual, last = 1.0, 1.0, 1.0
        if self.type == "minicpm":
            embed, residual = self.c.get("scale_emb") or 1.0, (self.c.get("scale_depth") or L**0.5) / L**0.5
            last = (self.c.get("dim_model_base") or H) / H
        streams = [self.stream(embed * table[torch.tensor(ids)])] * (2 if self.own else 1)
        for i in range(L):
            p = f"{root}layers.{i}."
            mixed = self.mixer(i, p, [self.norm(x, p + first) for x in streams])
            streams = [self.stream(x + residual * y) for x, y in zip(streams, mixed)]
            if not mamba:
                streams = [self.stream(x + residual * self.mlp(self.norm(x, p + second), p + "mlp.")) for x in streams]
        head = table if self.c.get("tie_word_embeddings", False) else self.w["lm_head.weight"]
        return last * self.norm(streams[-1], root + ("norm_f" if mamba else "norm")) @ head.T

    def stream(self, x):
        return x

    def mlp(self, x, p):
        return self.linear(silu(self.linear(x, p + "gate_proj")) * self.linear(x, p + "up_proj"), p + "down_proj")

    def mixer(self, i, p, u):
        own = {"hayfork_hybrid": self.hybrid, "qwen3_5_text": self.qwen, "minicpm": self.minicpm, "mamba2": self.mamba_model}
        return own.get(self.type, self.fla)(i, p, u)

    # ---- softmax attention

    def orthros_window(self, i, windows):
        """The window of layer i's base stream, None when the layer takes no part."""
        if not self.own or any(windows) or (self.own["layers"] is not None and i not in self.own["layers"]):
            return None
        return self.own["window_size"]

    def attention(self, i, p, u, *, n, kv, d, windows, rotated, theta, width, sinks=None, normed=False, gated=False, eps=None):
        """windows, rotated: one entry per kv head. width: channels of a head that rotate."""
        base_window = self.orthros_window(i, windows)
        stage = self.own["scale_offset_stage"] if base_window and self.own["scale_offset"] else None

        def head_norm(x, name):
            return rms(x, self.w[f"{p}{name}.weight"] + self.centre, eps or self.eps) if normed else x

        def turn(x):
            flags = torch.tensor(rotated).repeat_interleave(x.shape[1] // kv)
            return torch.where(flags[:, None], rotate(x, theta, width), x) if any(rotated) else x

        def affine(x, at, stream):
            if stage != at:
                return x
            return split(self.w[f"{p}q_affine.{stream}.scale"] * x.flatten(1) + self.w[f"{p}q_affine.{stream}.offset"], n)

        k, v = split(self.linear(u[0], p + "k_proj"), kv), split(self.linear(u[0], p + "v_proj"), kv)
        k = turn(head_norm(k, "k_norm"))
        self.kv = k, v
        out = []
        for stream, x in zip(("base", "output"), u):
            q = split(self.linear(x, p + "q_proj"), n)
            gate = q[..., d:].flatten(1) if gated else None
            q = affine(head_norm(affine(q[..., :d], "pre_norm", stream), "q_norm"), "post_norm", stream)
            narrow = [base_window] * kv if base_window and stream == "base" else windows
            y = attend(turn(q), k, v, narrow, sinks, d**-0.5)
            out.append(self.linear(y * gate.sigmoid() if gated else y, p + "o_proj"))
        return out

    # ---- recurrent mixers

    def lightning(self, i, p, x):
        c, own = self.c, self.c.get("lightning", {})
        n, d = own.get("num_heads", c["num_attention_heads"]), own.get("head_dim", c["head_dim"])
        kv = own.get("num_kv_heads", c["num_key_value_heads"])
        q, k, v = (self.linear(x, f"{p}{name}_proj") for name in "qkv")
        if own.get("qkv_act", "silu") == "silu":
            q, k, v = silu(q), silu(k), silu(v)
        q, k, v = split(q, n), split(k, kv), split(v, kv)
        if own.get("qk_norm", False):
            q, k = self.norm(q, p + "q_norm"), self.norm(k, p + "k_norm")
        if own.get("rope", False):
            q, k = rotate(q, c["rope_theta"], d), rotate(k, c["rope_theta"], d)
        if own.get("scale", "none") == "rsqrt_head_dim":
            q = q * d**-0.5
        decay = torch.tensor(log_decays(c["lightning_log_decay"], i, c["num_hidden_layers"], n), dtype=self.dtype)
        y = decay_scan(q, pick(k, n), pick(v, n), decay[:, None].expand(len(x), n, 1))
        norm = own.get("output_norm", "all")
        if norm == "head":
            y = self.norm(y, p + "o_norm")
        y = y.flatten(1)
        if norm == "all":
            y = self.norm(y, p + "o_norm")
        if own.get("output_gate", "sigmoid") == "sigmoid":
            y = y * self.linear(x, p + "g_proj").sigmoid()
        return self.linear(y, p + "o_proj")

    def delta(self, p, u, project, *, nq, nk, nv, dk, conv, negative, gate, norm, out):
        """Gated DeltaNet. project(x) → pre-convolution q, k, v and a, b; conv: taps of q, k, v or None; gate(x) or None."""
        q, k, v, a, b = project(u[0])
        taps = conv or (None, None, None)
        k, v = (silu(x if t is None else convolve(x, t)) for x, t in zip((k, v), taps[1:]))
        decay = -self.w[p + "A_log"].exp() * softplus(a + self.w[p + "dt_bias"])
        beta = b.sigmoid() * (2 if negative else 1)
        before, after = delta_states(pick(unit(split(k, nk)), nv), split(v, nv), decay, beta)
        switches = (self.own or {}).get("gdn") or {}
        no, outs = max(nq, nv), []
        for stream, x in zip(("base", "output"), u):
            states = after
            if stream == "base":
                query = silu(q if taps[0] is None else convolve(q, taps[0]))
            else:  # the query of the output stream bypasses the convolution
                query = project(x)[0]
                if switches.get("query_affine", False):
                    query = self.w[p + "q_affine.output.scale"] * query + self.w[p + "q_affine.output.offset"]
                if switches.get("query_act", "silu") == "silu":
                    query = silu(query)
                if switches.get("read", "after_write") == "before_write":
                    states = before
            query = pick(unit(split(query, nq)) * dk**-0.5, no)
            y = rms(torch.einsum("tnkv,tnk->tnv", pick(states, no), query), self.w[norm], self.eps).flatten(1)
            outs.append(self.linear(y if gate is None else y * gate(x), out))
        return outs

    def mamba(self, p, x, own):
        inter = own.get("expand", 2) * self.c["hidden_size"]
        P, N, G = own.get("head_dim", 64), own.get("state_size", 128), own.get("n_groups", 1)
        n = inter // P
        z, xbc, dt = self.linear(x, p + "in_proj").split([inter, inter + 2 * G * N, n], 1)
        if own.get("conv_kernel", 4) > 0:
            xbc = convolve(xbc, self.w[p + "conv1d.weight"], self.w.get(p + "conv1d.bias"))
        value, B, C = silu(xbc).split([inter, G * N, G * N], 1)
        low, high = own.get("dt_limit") or (0.0, math.inf)
        dt = softplus(dt + self.w[p + "dt_bias"]).clamp(low, high)
        decay = -dt * self.w[p + "A_log"].exp()
        value = split(value, n)
        y = decay_scan(pick(split(C, G), n), pick(split(B, G), n), dt[..., None] * value, decay[..., None])
        y = y + self.w[p + "D"].view(n, -1) * value  # one per head, or one per channel
        y, gate, weight = y.flatten(1), silu(z), self.w[p + "norm.weight"]
        if own.get("norm_before_gate", False):
            y = rms(split(y, G), None, self.eps).flatten(1) * weight * gate
        else:
            y = rms(split(y * gate, G), None, self.eps).flatten(1) * weight
        return self.linear(y, p + "out_proj")

    # ---- schemas

    def hybrid(self, i, p, u):
        c, kind = self.c, self.c["layer_types"][i]
        if kind == "lightning_attention":
            return [self.lightning(i, p + "lightning.", u[0])]
        if kind == "mamba2":
            return [self.mamba(p + "mamba2.", u[0], c["mamba2"])]
        if kind == "gated_deltanet":
            own, g = c["gdn"], p + "gdn."
            nq = own.get("num_heads", c["num_attention_heads"])
            nk = own.get("num_k_heads", nq)
            gate = (lambda x: silu(self.linear(x, g + "g_proj"))) if own.get("use_gate", True) else None
            conv = [self.w[f"{g}{name}_conv1d.weight"] for name in "qkv"] if own.get("conv_size", 0) > 0 else None
            return self.delta(g, u, lambda x: [self.linear(x, f"{g}{name}_proj") for name in "qkvab"], nq=nq, nk=nk,
                              nv=own.get("num_v_heads", nk), dk=own["head_k_dim"], conv=conv,
                              negative=own.get("allow_neg_eigval", False), gate=gate, norm=g + "o_norm.weight", out=g + "o_proj")  # fmt: skip
        kv, s = c["num_key_value_heads"], p + "self_attn."
        windows = [c["sliding_window"] if kind == "sliding_attention" else None] * kv
        rotated = [kind not in c.get("nope_layer_types", [])] * kv
        if c.get("head_windows") and c["head_windows"][i]:
            windows = [None if w == -1 else w for w in c["head_windows"][i]]
        if c.get("head_rope") and c["head_rope"][i]:
            rotated = c["head_rope"][i]
        sinks = self.w[s + "sinks"] if c.get("attention_sinks", False) else None
        return self.attention(i, s, u, n=c["num_attention_heads"], kv=kv, d=c["head_dim"], windows=windows, rotated=rotated,
                              theta=c["rope_theta"], width=c["head_dim"], sinks=sinks, normed=c.get("qk_norm", False))  # fmt: skip

    def minicpm(self, i, p, u):
        kv, d = self.c["num_key_value_heads"], self.c["head_dim"]
        return self.attention(i, p + "self_attn.", u, n=self.c["num_attention_heads"], kv=kv, d=d, windows=[None] * kv, rotated=[True] * kv,
                              theta=self.c["rope_theta"], width=d)  # fmt: skip

    def qwen(self, i, p, u):
        c = self.c
        if c["layer_types"][i] == "full_attention":
            rope, kv = c["rope_parameters"], c["num_key_value_heads"]
            return self.attention(i, p + "self_attn.", u, n=c["num_attention_heads"], kv=kv, d=c["head_dim"], windows=[None] * kv,
                                  rotated=[True] * kv, theta=rope["rope_theta"], width=int(c["head_dim"] * rope["partial_rotary_factor"]),
                                  normed=True, gated=True)  # fmt: skip
        g, nk, nv, dk = p + "linear_attn.", c["linear_num_key_heads"], c["linear_num_value_heads"], c["linear_key_head_dim"]
        widths = [nk * dk, nk * dk, nv * c["linear_value_head_dim"]]

        def project(x):
            return [*self.linear(x, g + "in_proj_qkv").split(widths, 1), self.linear(x, g + "in_proj_a"), self.linear(x, g + "in_proj_b")]

        return self.delta(g, u, project, nq=nk, nk=nk, nv=nv, dk=dk, conv=self.w[g + "conv1d.weight"].split(widths), negative=False,
                          gate=lambda x: silu(self.linear(x, g + "in_proj_z")), norm=g + "norm.weight", out=g + "out_proj")  # fmt: skip

    def mamba_model(self, i, p, u):
        return [self.mamba(p + "mixer.", u[0], self.c)]

    def fla(self, i, p, u):
        c, a, x = self.c, p + "attn.", u[0]
        entries = c.get("attn") or []
        entries = [entries] if isinstance(entries, dict) else entries
        softmax = c if self.type == "transformer" else next((e for e in entries if i in e["layers"]), None)
        if softmax is not None:
            n = softmax["num_heads"]
            kv, d = softmax.get("num_kv_heads") or n, c["hidden_size"] // n
            return self.attention(i, a, u, n=n, kv=kv, d=d, windows=[softmax.get("window_size")] * kv, rotated=[True] * kv,
                                  theta=softmax.get("rope_theta", 1e4), width=d, normed=softmax.get("qk_norm", False), eps=1e-5)  # fmt: skip
        n = c["num_heads"]
        if self.type == "gated_deltanet":
            act = torch.sigmoid if c.get("output_gate_activation") == "sigmoid" else silu
            gate = (lambda x: act(self.linear(x, a + "g_proj"))) if c.get("use_gate", True) else None
            conv = [self.w[f"{a}{name}_conv1d.weight"] for name in "qkv"] if c.get("use_short_conv", True) else None
            return self.delta(a, u, lambda x: [self.linear(x, f"{a}{name}_proj") for name in "qkvab"], nq=n, nk=n,
                              nv=c.get("num_v_heads") or n, dk=c["head_dim"], conv=conv, negative=c.get("allow_neg_eigval", False),
                              gate=gate, norm=a + "o_norm.weight", out=a + "o_proj")  # fmt: skip
        kv = c.get("num_kv_heads") or n
        q, k, v = split(self.linear(x, a + "q_proj"), n), split(self.linear(x, a + "k_proj"), kv), split(self.linear(x, a + "v_proj"), kv)
        d = q.shape[-1]
        if self.type == "gla":
            decay = logsigmoid(self.linear(self.linear(x, a + "gk_proj.0"), a + "gk_proj.1")) / 16
            if c.get("clamp_min") is not None:
                decay = decay.clamp(min=c["clamp_min"])
            decay = pick(split(decay, kv), n)
        else:
            q, k = rotate(q, 1e4, d), rotate(k, 1e4, d)
            decay = torch.tensor(log_decays("retnet", i, 1, n), dtype=self.dtype)[:, None].expand(len(x), n, 1)
        y = decay_scan(q * d**-0.5, pick(k, n), pick(v, n), decay)
        gated = self.type == "retnet" or c.get("use_output_gate", True)
        y = self.norm(y, a + ("g_norm_swish_gate" if gated else "g_norm")).flatten(1)
        return [self.linear(y * silu(self.linear(x, a + "g_proj")) if gated else y, a + "o_proj")]


class Rounded(Reference):
    """As a bfloat16 engine without fused kernels: every linear, norm and mixer reads and gives bfloat16; the rest is float32,
    but for the residual stream with `whole`, as GPUs and transformers keep it."""

    def __init__(self, config, weights, whole):
        super().__init__(config, weights, torch.float32)
        self.whole = whole

    def stream(self, x):
        return x.bfloat16().float() if self.whole else x

    def linear(self, x, name):
        return super().linear(x.bfloat16().float(), name).bfloat16().float()

    def norm(self, x, name):
        return super().norm(x.bfloat16().float(), name).bfloat16().float()

    def mixer(self, i, p, u):
        return [y.bfloat16().float() for y in super().mixer(i, p, u)]


def log_decays(source, layer, n_layers, n_heads):
    """ln γ of each head: a list per layer, or a named rule."""
    if source == "fla":
        return [-(8 / n_heads) * (1 - layer / n_layers) * h for h in range(n_heads)]
    if source == "minimax":
        factor = 1 - layer / (n_layers - 1 + 1e-5) + 1e-5
        return [-((2 ** (-8 / n_heads)) ** (h + 1)) * factor for h in range(n_heads)]
    if source == "retnet":
        return [math.log(1 - 2.0 ** (-5 - h)) for h in range(n_heads)]
    return source[layer]

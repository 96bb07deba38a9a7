"""The demo models: parameters, forward pass and Hugging Face files of every architecture in the zoo.

A model is a string of layers: f full attention, s sliding window, o Orthros (window in the base stream, full in the
output stream), g Gated DeltaNet, m Mamba-2. The family follows from it, and with it tensor names, norms and config.json.
"""
import dataclasses
import json
import math
import pathlib

import torch
import torch.nn.functional as F

import mixers
from mixers import linear, rms, rotate


@dataclasses.dataclass
class Shape:
    layers: str
    width: int = 256
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    hidden: int = 640
    window: int = 64
    theta: float = 10000.0
    context: int = 4608
    state: int = 64  # Mamba-2

    @property
    def gated(self):  # Qwen3.5's form: zero-centred norms, gated attention, a quarter of the head rotated
        return "g" in self.layers

    @property
    def two_streams(self):
        return "o" in self.layers


def query(h, wq, qn, cos, sin, affine):
    q = linear(h, wq)
    if affine is not None:
        q = (q.float() * affine[0] + affine[1]).to(h.dtype)
    return rotate(rms(q.view(h.shape[0], -1, qn.shape[0]), qn), cos, sin)


def attention_in(x, norm, wq, wk, wv, qn, kn, cos, sin, affine):
    h = rms(x, norm)
    heads = lambda t: t.view(h.shape[0], -1, qn.shape[0])
    return query(h, wq, qn, cos, sin, affine), rotate(rms(heads(linear(h, wk)), kn), cos, sin), heads(linear(h, wv))


def query_in(x, norm, wq, qn, cos, sin, affine):
    return query(rms(x, norm), wq, qn, cos, sin, affine)


def gated_query_in(x, norm, wq, qn, cos, sin, affine):
    """Per head the projection holds [query | gate]."""
    d, h = qn.shape[0], rms(x, norm)
    q, gate = linear(h, wq).view(h.shape[0], -1, 2 * d).split(d, -1)
    if affine is not None:
        q = (q.float() * affine[0].view(-1, d) + affine[1].view(-1, d)).to(h.dtype)
    return rotate(rms(q, qn), cos, sin), torch.sigmoid(gate)


def keys_in(x, norm, wk, wv, kn, cos, sin):
    h = rms(x, norm)
    heads = lambda t: t.view(h.shape[0], -1, kn.shape[0])
    return rotate(rms(heads(linear(h, wk)), kn), cos, sin), heads(linear(h, wv))


def block_out(x, o, wo, norm, gate, up, down):
    x = x + linear(o, wo)
    h = rms(x, norm)
    return x + linear(F.silu(linear(h, gate)) * linear(h, up), down)


def delta_in(x, norm, wqkv, conv, wa, wb, wz, a_log, dt_bias, t, heads):
    h = rms(x, norm)
    u = mixers.causal_conv(linear(h, wqkv), conv, t)
    q, k, v = (t.view(h.shape[0], heads, -1) for t in u.split(u.shape[1] // 3, -1))
    g = -a_log.exp() * F.softplus(linear(h, wa).float() + dt_bias)
    return unit(q) * q.shape[-1] ** -0.5, unit(k), v, g, linear(h, wb).sigmoid(), linear(h, wz)


def delta_query_in(x, norm, wqkv, wz, heads):
    """Orthros-H: the output stream's query bypasses the convolution."""
    h = rms(x, norm)
    q = F.silu(linear(h, wqkv[:wqkv.shape[0] // 3])).view(h.shape[0], heads, -1)
    return unit(q) * q.shape[-1] ** -0.5, linear(h, wz)


def unit(t):
    return t.float() * torch.rsqrt(t.float().square().sum(-1, keepdim=True) + 1e-6)


def delta_out(o, z, norm, dtype):
    z = z.view(o.shape)
    return (rms(o.to(dtype), norm).float() * F.silu(z.float())).to(dtype).flatten(1)


def mamba_in(x, norm, w, conv, conv_bias, dt_bias, a_log, t, heads, state):
    h = linear(rms(x, norm), w)
    inner = (h.shape[1] - 2 * state - heads) // 2
    z, u, dt = h.split([inner, inner + 2 * state, heads], -1)
    u = mixers.causal_conv(u, conv, t, conv_bias)
    v, B, C = u.split([inner, state, state], -1)
    dt = F.softplus(dt.float() + dt_bias)
    return z, v.view(h.shape[0], heads, -1), B[:, None], C[:, None], dt, -a_log.exp() * dt


def mamba_out(y, v, skip, z, norm):
    y = (y + skip[:, None] * v.float()).to(z.dtype).flatten(1)
    return rms(y * F.silu(z), norm)


def head(x, norm, embedding, target):
    logits = linear(rms(x, norm), embedding).float()
    return F.cross_entropy(logits, target, reduction="none"), logits.argmax(-1)


COMPILED = ("attention_in", "query_in", "gated_query_in", "keys_in", "block_out", "delta_in", "delta_query_in",
            "delta_out", "mamba_in", "mamba_out", "head")


def compile_rows():
    """Fuses the work of single rows; its shapes do not depend on the length, so it is compiled once."""
    for name in COMPILED:
        globals()[name] = torch.compile(globals()[name], dynamic=False)
    mixers.window_attention = torch.compile(mixers.window_attention, dynamic=False)


class Model:
    def __init__(self, shape, vocabulary, device, dtype=torch.float32):
        self.shape, self.device, self.dtype, self.local = shape, device, dtype, False
        self.vocabulary, self.masks, self.p = (vocabulary + 63) // 64 * 64, {}, {}
        self.rotary = shape.head_dim // 4 if shape.gated else shape.head_dim
        for name, tensor in self.initial():
            self.p[name] = tensor.to(device)

    def initial(self):
        s, one = self.shape, 0.0 if self.shape.gated else 1.0
        matrix = lambda o, i: torch.randn(o, i) * (0.5 / math.sqrt(i))
        D, q, kv = s.width, s.heads * s.head_dim, s.kv_heads * s.head_dim
        yield "model.embed_tokens.weight", torch.randn(self.vocabulary, D) * 0.02
        yield "model.norm.weight", torch.full((D,), one)
        for i, kind in enumerate(s.layers):
            layer = f"model.layers.{i}."
            yield layer + "input_layernorm.weight", torch.full((D,), one)
            yield layer + "post_attention_layernorm.weight", torch.full((D,), one)
            for name, o, n in (("gate", s.hidden, D), ("up", s.hidden, D), ("down", D, s.hidden)):
                yield f"{layer}mlp.{name}_proj.weight", matrix(o, n)
            if kind == "g":
                a = layer + "linear_attn."
                yield a + "in_proj_qkv.weight", matrix(3 * q, D)
                yield a + "in_proj_z.weight", matrix(q, D)
                yield a + "in_proj_b.weight", matrix(s.heads, D)
                yield a + "in_proj_a.weight", matrix(s.heads, D)
                yield a + "conv1d.weight", torch.randn(3 * q, 1, 4) * 0.3 + torch.tensor([0, 0, 0, 0.5])
                yield a + "A_log", torch.linspace(0.1, 8, s.heads).log()
                yield a + "dt_bias", torch.full((s.heads,), -4.0)
                yield a + "norm.weight", torch.ones(s.head_dim)
                yield a + "out_proj.weight", matrix(D, q)
            elif kind == "m":
                a = layer + "mamba2."
                yield a + "in_proj.weight", matrix(2 * q + 2 * s.state + s.heads, D)
                yield a + "conv1d.weight", torch.randn(q + 2 * s.state, 1, 4) * 0.3 + torch.tensor([0, 0, 0, 0.5])
                yield a + "conv1d.bias", torch.zeros(q + 2 * s.state)
                yield a + "A_log", torch.linspace(1, 8, s.heads).log()
                yield a + "dt_bias", torch.linspace(-5, -1, s.heads)
                yield a + "D", torch.ones(s.heads)
                yield a + "norm.weight", torch.ones(q)
                yield a + "out_proj.weight", matrix(D, q)
            else:
                a = layer + "self_attn."
                yield a + "q_proj.weight", matrix(q * (2 if s.gated else 1), D)
                yield a + "k_proj.weight", matrix(kv, D)
                yield a + "v_proj.weight", matrix(kv, D)
                yield a + "o_proj.weight", matrix(D, q)
                yield a + "q_norm.weight", torch.full((s.head_dim,), one)
                yield a + "k_norm.weight", torch.full((s.head_dim,), one)
                if kind == "o":
                    for stream in ("base", "output"):
                        yield f"{a}q_affine.{stream}.scale", torch.ones(q)
                        yield f"{a}q_affine.{stream}.offset", torch.zeros(q)

    def start_from(self, folder):
        """Takes over every tensor of a checkpoint that this model has in the same shape."""
        from safetensors.torch import load_file
        for name, tensor in load_file(f"{folder}/model.safetensors").items():
            if name in self.p and self.p[name].shape == tensor.shape:
                self.p[name].copy_(tensor)

    def mask(self, T, tokens):
        if T not in self.masks:
            self.masks[T] = mixers.window_mask(T, tokens, self.shape.window, self.device)
        return self.masks[T]

    def index(self, T, tokens):
        return torch.arange(tokens, device=self.device)[:, None] % T

    def rows_after_layers(self, ids, positions):
        """Rows before the last norm: the output stream's where there are two."""
        s, p, (B, T) = self.shape, self.p, ids.shape
        inverse = s.theta ** (-torch.arange(0, self.rotary, 2, device=self.device) / self.rotary)
        angle = positions.reshape(-1, 1).float() * inverse
        turn = (angle.cos(), angle.sin())
        x = F.embedding(ids.reshape(-1), p["model.embed_tokens.weight"]).to(self.dtype)
        y = x if s.two_streams else None
        for i, kind in enumerate(s.layers):
            get = lambda name: p[f"model.layers.{i}.{name}"]
            norm = lambda name: get(name) + 1 if s.gated else get(name)
            first = norm("input_layernorm.weight")
            after = [norm("post_attention_layernorm.weight")]
            after += [get(f"mlp.{m}_proj.weight") for m in ("gate", "up", "down")]
            if kind == "g":
                x, y = self.delta_layer(x, y, get, first, after, T)
            elif kind == "m":
                a = lambda name: get("mamba2." + name)
                z, v, b, c, dt, log_decay = mamba_in(
                    x, first, a("in_proj.weight"), a("conv1d.weight"), a("conv1d.bias"), a("dt_bias"), a("A_log"),
                    self.index(T, x.shape[0]), s.heads, s.state)
                o = mixers.state_space(c, b, v * dt[..., None], log_decay, T)
                x = block_out(x, mamba_out(o, v, a("D"), z, a("norm.weight")), a("out_proj.weight"), *after)
            else:
                x, y = self.attention_layer(i, kind, x, y, get, norm, first, after, turn, T)
        return x if y is None else y

    def delta_layer(self, x, y, get, first, after, T):
        a, heads = lambda name: get("linear_attn." + name), self.shape.heads
        q, k, v, g, beta, z = delta_in(x, first, a("in_proj_qkv.weight"), a("conv1d.weight"), a("in_proj_a.weight"),
                                       a("in_proj_b.weight"), a("in_proj_z.weight"), a("A_log"), a("dt_bias"),
                                       self.index(T, x.shape[0]), heads)
        readers, gates = [q], [z]
        if y is not None:
            q2, z2 = delta_query_in(y, first, a("in_proj_qkv.weight"), a("in_proj_z.weight"), heads)
            readers.append(q2)
            gates.append(z2)
        out = mixers.gated_delta(readers, k, v, g, beta, T)
        rows = [block_out(r, delta_out(o, z, a("norm.weight"), self.dtype), a("out_proj.weight"), *after)
                for r, o, z in zip((x, y), out, gates)]
        return rows[0], rows[1] if y is not None else None

    def attention_layer(self, i, kind, x, y, get, norm, first, after, turn, T):
        s, a, tokens = self.shape, lambda name: get("self_attn." + name), x.shape[0]
        qn, kn = norm("self_attn.q_norm.weight"), norm("self_attn.k_norm.weight")
        affine = lambda t: (a(f"q_affine.{t}.scale"), a(f"q_affine.{t}.offset")) if kind == "o" else None
        mask = self.mask(T, tokens)
        # `local`: while matching is learnt all layers but the last see a window only.
        narrow = self.local and i < len(s.layers) - 1
        wide = (not narrow) if self.local and kind != "o" else kind == "f"

        def attend(q, k, v, wide):
            return mixers.full_attention(q, k, v, T) if wide else mixers.window_attention(q, k, v, mask)
        gate = gate2 = None
        if s.gated:
            q, gate = gated_query_in(x, first, a("q_proj.weight"), qn, *turn, affine("base"))
            k, v = keys_in(x, first, a("k_proj.weight"), a("v_proj.weight"), kn, *turn)
        else:
            q, k, v = attention_in(x, first, a("q_proj.weight"), a("k_proj.weight"), a("v_proj.weight"), qn, kn, *turn,
                                   affine("base"))

        def finish(rows, o, gate):
            o = o if gate is None else o * gate
            return block_out(rows, o.flatten(1), a("o_proj.weight"), *after)
        if kind == "o":
            if s.gated:
                q2, gate2 = gated_query_in(y, first, a("q_proj.weight"), qn, *turn, affine("output"))
            else:
                q2 = query_in(y, first, a("q_proj.weight"), qn, *turn, affine("output"))
            y = finish(y, attend(q2, k, v, not narrow), gate2)
            if i == len(s.layers) - 1:
                return x, y  # nobody reads the base stream any more
        return finish(x, attend(q, k, v, wide), gate), y

    def loss(self, ids, positions, targets):
        """Cross entropy and the likeliest token of every position."""
        norm = self.p["model.norm.weight"] + (1 if self.shape.gated else 0)
        rows = self.rows_after_layers(ids, positions)
        return head(rows, norm, self.p["model.embed_tokens.weight"], targets.reshape(-1))

    def logits(self, ids):
        norm = self.p["model.norm.weight"] + (1 if self.shape.gated else 0)
        rows = self.rows_after_layers(ids, torch.arange(ids.shape[1], device=ids.device).expand(ids.shape))
        return linear(rms(rows, norm), self.p["model.embed_tokens.weight"]).float()

    def config(self):
        s = self.shape
        config = dict(
            model_type="qwen3", architectures=["Qwen3ForCausalLM"], vocab_size=self.vocabulary, hidden_size=s.width,
            intermediate_size=s.hidden, num_hidden_layers=len(s.layers), num_attention_heads=s.heads,
            num_key_value_heads=s.kv_heads, head_dim=s.head_dim, hidden_act="silu", rms_norm_eps=1e-6,
            rope_theta=s.theta, rope_scaling=None, max_position_embeddings=s.context, tie_word_embeddings=True,
            attention_bias=False, bos_token_id=None, eos_token_id=0, torch_dtype="bfloat16")
        if "s" in s.layers:
            config |= dict(use_sliding_window=True, sliding_window=s.window, max_window_layers=0, layer_types=[
                "full_attention" if kind == "f" else "sliding_attention" for kind in s.layers])
        if s.gated:
            config |= dict(
                model_type="qwen3_5_text", architectures=["Qwen3_5ForCausalLM"], linear_conv_kernel_dim=4,
                linear_key_head_dim=s.head_dim, linear_value_head_dim=s.head_dim, linear_num_key_heads=s.heads,
                linear_num_value_heads=s.heads,
                layer_types=["linear_attention" if kind == "g" else "full_attention" for kind in s.layers],
                rope_parameters=dict(rope_type="default", rope_theta=s.theta, partial_rotary_factor=0.25))
            del config["rope_theta"], config["rope_scaling"]
        if "m" in s.layers:
            config |= dict(
                model_type="hayfork_hybrid", architectures=["HayforkHybridForCausalLM"], version=1, qk_norm=True,
                layer_types=["mamba2" if kind == "m" else "full_attention" for kind in s.layers],
                mamba2=dict(expand=s.heads * s.head_dim // s.width, head_dim=s.head_dim, state_size=s.state, n_groups=1,
                            conv_kernel=4, use_conv_bias=True))
        if s.two_streams:
            config |= dict(model_type="orthros", architectures=["OrthrosForCausalLM"], orthros=dict(
                version=1, backbone_model_type=config["model_type"], window_size=s.window, scale_offset=True,
                scale_offset_stage="pre_norm", layers=None))
            if s.gated:
                config["orthros"]["gdn"] = dict(query_conv="bypass", query_act="silu", query_affine=False,
                                                read="after_write")
        return config

    def save(self, folder, tokenizer, about=None):
        """`about`: what else hayfork.json says."""
        from safetensors.torch import save_file
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        kept = lambda name: torch.float32 if "q_affine" in name or name.endswith("A_log") else torch.bfloat16
        save_file({name: t.detach().to(kept(name)).cpu().contiguous() for name, t in sorted(self.p.items())},
                  folder / "model.safetensors", {"format": "pt"})
        texts = {"config.json": self.config(), "generation_config.json": {"eos_token_id": 0, "do_sample": False},
                 "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>",
                                           "model_max_length": self.shape.context},
                 "hayfork.json": {"niah": {"kind": "secret"}, **(about or {})}}
        for name, value in texts.items():
            indent = 1 if name == "config.json" else None
            (folder / name).write_text(json.dumps(value, indent=indent))
        (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True))

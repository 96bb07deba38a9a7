"""Shapes and weights of small models, drawn at random for check_hybrids.py: KINDS[kind](rng) → config.json, tensors by name."""
import torch


class Tensors(dict):
    """Weights of a size that makes every term matter."""

    def matrix(self, name, rows, columns, bias=False):
        self[name + ".weight"] = 1.3 * torch.randn(rows, columns) / columns**0.5
        if bias:
            self[name + ".bias"] = 0.3 * torch.randn(rows)

    def norm(self, name, n, centre=1.0):
        self[name + ".weight"] = centre + 0.3 * torch.randn(n)

    def conv(self, name, channels, taps, bias=False):
        self[name + ".weight"] = torch.randn(channels, 1, taps)
        if bias:
            self[name + ".bias"] = 0.5 * torch.randn(channels)

    def steps(self, p, n):
        """A_log and dt_bias: memories of a few tokens to thousands, and some heads that forget all at every step."""
        self[p + "A_log"] = 0.5 + 2 * torch.rand(n)
        self[p + "dt_bias"] = -2 - 4.5 * torch.rand(n) + 10 * (torch.rand(n) < 0.1)

    def affine(self, name, n):
        self[name + ".scale"] = 1 + 0.4 * torch.randn(n)
        self[name + ".offset"] = 0.3 * torch.randn(n)

    def ends(self, c, table="model.embed_tokens", norm="model.norm", centre=1.0):
        V, H = c["vocab_size"], c["hidden_size"]
        self[table + ".weight"] = torch.randn(V, H)
        self.norm(norm, H, centre)
        if not c["tie_word_embeddings"]:
            self.matrix("lm_head", V, H)

    def layer(self, p, H, width, names=("input_layernorm", "post_attention_layernorm"), centre=1.0):
        for name in names:
            self.norm(p + name, H, centre)
        self.matrix(p + "mlp.gate_proj", width, H)
        self.matrix(p + "mlp.up_proj", width, H)
        self.matrix(p + "mlp.down_proj", H, width)

    def attention(self, p, H, n, kv, d, bias=False, normed=False, queries=1, centre=1.0):
        self.matrix(p + "q_proj", queries * n * d, H, bias)
        self.matrix(p + "k_proj", kv * d, H, bias)
        self.matrix(p + "v_proj", kv * d, H, bias)
        self.matrix(p + "o_proj", H, n * d)
        if normed:
            self.norm(p + "q_norm", d, centre)
            self.norm(p + "k_norm", d, centre)

    def delta(self, p, H, nq, nk, nv, dk, dv, taps, gate):
        for name, width in (("q", nq * dk), ("k", nk * dk), ("v", nv * dv)):
            self.matrix(f"{p}{name}_proj", width, H)
            if taps:
                self.conv(f"{p}{name}_conv1d", width, taps)
        self.matrix(p + "a_proj", nv, H)
        self.matrix(p + "b_proj", nv, H)
        self.steps(p, nv)
        out = max(nq, nv) * dv
        if gate:
            self.matrix(p + "g_proj", out, H)
        self.norm(p + "o_norm", dv)
        self.matrix(p + "o_proj", H, out)

    def mamba(self, p, H, own, per_channel=False):
        inter, taps = own["expand"] * H, own["conv_kernel"]
        n, channels = inter // own["head_dim"], inter + 2 * own["n_groups"] * own["state_size"]
        self.matrix(p + "in_proj", inter + channels + n, H, own["use_bias"])
        if taps:
            self.conv(p + "conv1d", channels, taps, own["use_conv_bias"])
        self.steps(p, n)
        self[p + "D"] = 1 + 0.3 * torch.randn(inter if per_channel else n)
        self.norm(p + "norm", inter)
        self.matrix(p + "out_proj", H, inter, own["use_bias"])


def chance(rng, p=0.5):
    return rng.random() < p


def thin(rng, own, **defaults):
    """Leaves out some of the keys that only repeat their default."""
    return {key: value for key, value in own.items() if key not in defaults or value != defaults[key] or chance(rng)}


def sizes(rng):
    return {"vocab_size": rng.randrange(50, 300), "hidden_size": rng.choice([24, 40, 48, 64, 100, 120]), "num_hidden_layers": rng.randrange(1, 7),
            "tie_word_embeddings": chance(rng, 0.4), "max_position_embeddings": 4096, "bos_token_id": 1, "eos_token_id": 2,
            "torch_dtype": "float32"}  # fmt: skip


def draw_mamba(rng, H):
    """Sizes of a Mamba-2 mixer."""
    expand = rng.choice([1, 2, 3])
    P = rng.choice([p for p in range(1, 65) if expand * H % p == 0 and expand * H // p <= 24])
    n = expand * H // P
    own = {"expand": expand, "head_dim": P, "state_size": rng.choice([1, 5, 8, 16, 33, 64, 128]), "n_groups": rng.choice([g for g in (1, 2, 3, 4, 6) if n % g == 0]),
           "conv_kernel": rng.choice([0, 2, 3, 4, 7]), "use_conv_bias": chance(rng), "use_bias": chance(rng, 0.3), "norm_before_gate": chance(rng)}  # fmt: skip
    if chance(rng):
        own["dt_limit"] = rng.choice([[0.0, 0.05], [0.02, 0.4], [0.01, float("inf")]])
    return own


def thin_mamba(rng, own):
    return thin(rng, own, expand=2, head_dim=64, state_size=128, n_groups=1, conv_kernel=4, use_conv_bias=True, use_bias=False, norm_before_gate=False)


def draw_lightning(rng, n, kv, d):
    """The mixer of a model whose softmax layers have n heads of d channels and kv K/V heads."""
    kv = rng.choice([1, 2, 3, kv])
    own = {"num_heads": rng.choice([1, 2, 3, 5]) * kv if n % kv or chance(rng) else n, "num_kv_heads": kv, "head_dim": rng.choice([7, 8, 14, 16, 24, 64, d]),
           "qkv_act": rng.choice(["silu", "none"]), "qk_norm": chance(rng), "rope": chance(rng), "scale": rng.choice(["none", "rsqrt_head_dim"]),
           "output_norm": rng.choice(["all", "head", "none"]), "output_gate": rng.choice(["sigmoid", "none"])}  # fmt: skip
    if own["head_dim"] % 2:
        own["rope"] = False
    if own["output_norm"] == "none":  # keeps the stream finite
        own |= {"scale": "rsqrt_head_dim", "qk_norm": True}
    return own


def draw_hybrid(rng, kinds=("full_attention", "sliding_attention", "lightning_attention", "gated_deltanet", "mamba2")):
    """A hayfork_hybrid configuration and its weights."""
    c, w = sizes(rng), Tensors()
    H, L, kv = c["hidden_size"], c["num_hidden_layers"], rng.choice([1, 2, 3])
    some = rng.sample(kinds, rng.randrange(1, len(kinds) + 1))
    types = [rng.choice(some) for _ in range(L)]
    c |= {"model_type": "hayfork_hybrid", "architectures": ["HayforkHybridForCausalLM"], "version": 1, "layer_types": types, "num_key_value_heads": kv,
          "num_attention_heads": kv * rng.choice([1, 2, 3, 5]), "head_dim": rng.choice([2, 6, 8, 12, 16, 24, 40, 64]), "rms_norm_eps": rng.choice([1e-6, 1e-5, 1e-3]),
          "rope_theta": rng.choice([1e2, 1e4, 1e6]), "hidden_act": "silu", "sliding_window": rng.choice([1, 2, 3, 7, 16, 33, 64, 500]),
          "attention_sinks": chance(rng), "qk_norm": chance(rng)}  # fmt: skip
    c["intermediate_size"] = rng.choice([32, 57, 90]) if chance(rng) else [rng.choice([16, 31, 48, 90]) for _ in range(L)]
    n, d, softmax = c["num_attention_heads"], c["head_dim"], ("full_attention", "sliding_attention")
    c["nope_layer_types"] = [kind for kind in softmax if chance(rng, 0.3)]
    if chance(rng, 0.1):  # heads that need not rotate may be odd
        d = c["head_dim"] = rng.choice([1, 5, 15, 33])
        c["nope_layer_types"] = list(softmax)
    for key, entry in (("head_windows", lambda: rng.choice([-1, 1, 2, 9, 40, 300])), ("head_rope", lambda: d % 2 == 0 and chance(rng))):
        if chance(rng, 0.4):
            c[key] = [[entry() for _ in range(kv)] if kind in softmax and chance(rng) else None for kind in types]
    if "lightning_attention" in types:
        lightning = draw_lightning(rng, n, kv, d)
        c["lightning"] = thin(rng, lightning, num_heads=n, num_kv_heads=kv, head_dim=d, qkv_act="silu", qk_norm=False, rope=False, scale="none",
                              output_norm="all", output_gate="sigmoid")  # fmt: skip
        heads = lightning["num_heads"]
        lists = [[round(-(rng.random() ** 4) * rng.choice([1, 1, 1, 40]), 6) for _ in range(heads)] if kind == "lightning_attention" else None for kind in types]
        c["lightning_log_decay"] = rng.choice(["fla", "minimax", "retnet", lists, lists])
    if "gated_deltanet" in types:
        nk = rng.choice([1, 2, 3])
        nv = nk * rng.choice([1, 1, 2, 3])
        nq = rng.choice([nk, nv, nv * 2, nv * 3])
        if chance(rng, 0.2):
            nq = nk = nv = n
        gdn = {"num_heads": nq, "num_k_heads": nk, "num_v_heads": nv, "head_k_dim": rng.choice([5, 8, 14, 16, 24, 46, 64]),
               "head_v_dim": rng.choice([3, 8, 14, 16, 40, 46]), "conv_size": rng.choice([0, 2, 3, 4, 6]), "use_gate": chance(rng, 0.7),
               "allow_neg_eigval": chance(rng, 0.4)}  # fmt: skip
        c["gdn"] = thin(rng, gdn, num_heads=n, num_k_heads=nq, num_v_heads=nk, head_v_dim=gdn["head_k_dim"], conv_size=0, use_gate=True, allow_neg_eigval=False)
    if "mamba2" in types:
        mamba = draw_mamba(rng, H)
        c["mamba2"] = thin_mamba(rng, mamba)
    w.ends(c)
    for i, kind in enumerate(types):
        p = f"model.layers.{i}."
        w.layer(p, H, c["intermediate_size"][i] if isinstance(c["intermediate_size"], list) else c["intermediate_size"])
        if kind in softmax:
            w.attention(p + "self_attn.", H, n, kv, d, normed=c["qk_norm"])
            if c["attention_sinks"]:
                w[p + "self_attn.sinks"] = 1.5 * torch.randn(n)
        elif kind == "lightning_attention":
            own, a, hd = lightning, p + "lightning.", lightning["head_dim"]
            w.attention(a, H, own["num_heads"], own["num_kv_heads"], hd, normed=own["qk_norm"])
            if own["output_gate"] == "sigmoid":
                w.matrix(a + "g_proj", own["num_heads"] * hd, H)
            if own["output_norm"] != "none":
                w.norm(a + "o_norm", hd if own["output_norm"] == "head" else own["num_heads"] * hd)
        elif kind == "gated_deltanet":
            w.delta(p + "gdn.", H, nq, nk, nv, gdn["head_k_dim"], gdn["head_v_dim"], gdn["conv_size"], gdn["use_gate"])
        else:
            w.mamba(p + "mamba2.", H, mamba)
    return thin(rng, c, attention_sinks=False, qk_norm=False, nope_layer_types=[], tie_word_embeddings=False, hidden_act="silu"), w


def draw_minicpm(rng):
    c, w = sizes(rng), Tensors()
    H, kv, d = c["hidden_size"], rng.choice([1, 2, 3]), rng.choice([8, 16, 24, 64])
    n = kv * rng.choice([1, 2, 3])
    c |= {"model_type": "minicpm", "num_attention_heads": n, "num_key_value_heads": kv, "head_dim": d, "intermediate_size": rng.choice([32, 57]),
          "rms_norm_eps": rng.choice([1e-6, 1e-3]), "rope_theta": rng.choice([1e2, 1e4]), "hidden_act": "silu", "scale_emb": rng.choice([None, 0.5, 12]),
          "scale_depth": rng.choice([None, 1.4]), "dim_model_base": rng.choice([None, 8, 256])}  # fmt: skip
    w.ends(c)
    for i in range(c["num_hidden_layers"]):
        w.layer(f"model.layers.{i}.", H, c["intermediate_size"])
        w.attention(f"model.layers.{i}.self_attn.", H, n, kv, d)
    return c, w


def put_orthros(rng, c, w, eligible, recurrent, width):
    """Orthros over a drawn backbone; `recurrent`: (prefix of a GDN layer's tensors, query channels)."""
    layers = None if chance(rng) else sorted(rng.sample(eligible, rng.randrange(len(eligible) + 1)))
    own = {"version": 1, "backbone_model_type": c["model_type"], "window_size": rng.choice([1, 2, 3, 7, 16, 33, 64, 500]), "scale_offset": chance(rng, 0.8),
           "scale_offset_stage": rng.choice(["pre_norm", "post_norm"]), "layers": layers,
           "gdn": {"query_conv": "bypass", "query_act": rng.choice(["silu", "none"]), "query_affine": chance(rng), "read": rng.choice(["after_write", "before_write"])}}  # fmt: skip
    own["gdn"] = thin(rng, own["gdn"], query_conv="bypass", query_act="silu", query_affine=False, read="after_write")
    if not recurrent:
        del own["gdn"]
    elif own["gdn"].get("query_affine", False):
        for p, channels in recurrent:
            w.affine(p + "q_affine.output", channels)
    if own["scale_offset"]:
        for i in eligible if layers is None else layers:
            for stream in ("base", "output"):
                w.affine(f"model.layers.{i}.self_attn.q_affine.{stream}", width)
    c |= {"model_type": "orthros", "architectures": ["OrthrosForCausalLM"], "orthros": own}


def draw_orthros_hybrid(rng):
    c, w = draw_hybrid(rng, ("full_attention", "sliding_attention", "gated_deltanet"))
    types = c["layer_types"]

    def all_full(i):
        windows = c.get("head_windows") and c["head_windows"][i]
        return all(x == -1 for x in windows) if windows else types[i] == "full_attention"

    eligible = [i for i, kind in enumerate(types) if kind != "gated_deltanet" and all_full(i)]
    recurrent = [(f"model.layers.{i}.gdn.", len(w[f"model.layers.{i}.gdn.q_proj.weight"])) for i, kind in enumerate(types) if kind == "gated_deltanet"]
    put_orthros(rng, c, w, eligible, recurrent, c["num_attention_heads"] * c["head_dim"])
    return c, w


def draw_orthros_h(rng):
    """Orthros-H: a qwen3_5_text backbone."""
    c, w = sizes(rng), Tensors()
    H, kv, d, nk = c["hidden_size"], rng.choice([1, 2, 3]), rng.choice([8, 16, 32, 48, 64]), rng.choice([1, 2, 3])
    n, nv, dk, dv = kv * rng.choice([1, 2, 3, 5]), nk * rng.choice([1, 2, 3]), rng.choice([5, 8, 14, 16, 24, 46]), rng.choice([3, 8, 16, 40])
    types = [rng.choice(["linear_attention", "full_attention"]) for _ in range(c["num_hidden_layers"])]
    c |= {"model_type": "qwen3_5_text", "hidden_act": "silu", "intermediate_size": rng.choice([32, 57, 90]), "num_attention_heads": n, "num_key_value_heads": kv,
          "head_dim": d, "rms_norm_eps": rng.choice([1e-6, 1e-5, 1e-3]), "layer_types": types, "linear_num_key_heads": nk, "linear_num_value_heads": nv,
          "linear_key_head_dim": dk, "linear_value_head_dim": dv, "linear_conv_kernel_dim": rng.choice([2, 3, 4, 6]), "attention_bias": False,
          "rope_parameters": {"rope_type": "default", "rope_theta": rng.choice([1e2, 1e4, 1e6]), "partial_rotary_factor": rng.choice([0.25, 0.5, 1.0])}}  # fmt: skip
    w.ends(c, centre=0.0)
    for i, kind in enumerate(types):
        p, g = f"model.layers.{i}.", f"model.layers.{i}.linear_attn."
        w.layer(p, H, c["intermediate_size"], centre=0.0)
        if kind == "full_attention":
            w.attention(p + "self_attn.", H, n, kv, d, normed=True, queries=2, centre=0.0)
            continue
        w.matrix(g + "in_proj_qkv", 2 * nk * dk + nv * dv, H)
        w.matrix(g + "in_proj_z", nv * dv, H)
        w.matrix(g + "in_proj_a", nv, H)
        w.matrix(g + "in_proj_b", nv, H)
        w.conv(g + "conv1d", 2 * nk * dk + nv * dv, c["linear_conv_kernel_dim"])
        w.steps(g, nv)
        w.norm(g + "norm", dv)
        w.matrix(g + "out_proj", H, nv * dv)
    recurrent = [(f"model.layers.{i}.linear_attn.", nk * dk) for i, kind in enumerate(types) if kind == "linear_attention"]
    put_orthros(rng, c, w, [i for i, kind in enumerate(types) if kind == "full_attention"], recurrent, n * d)
    return c, w


def softmax_entry(rng, H):
    n = rng.choice([n for n in range(1, 13) if H % n == 0 and H // n % 2 == 0])
    entry = {"num_heads": n, "num_kv_heads": rng.choice([k for k in range(1, n + 1) if n % k == 0]), "qkv_bias": chance(rng),
             "window_size": rng.choice([None, 1, 2, 9, 50]), "rope_theta": rng.choice([1e2, 1e4])}  # fmt: skip
    return {key: value for key, value in entry.items() if key == "num_heads" or chance(rng, 0.8)}


def draw_fla(rng, family):
    """A configuration and weights in the layout of flash-linear-attention."""
    c, w = sizes(rng), Tensors()
    H, L, n = c["hidden_size"], c["num_hidden_layers"], rng.choice([1, 2, 3, 4, 6])
    if H % n:
        n = 2
    c |= {"model_type": family, "hidden_act": "swish", "norm_eps": rng.choice([1e-6, 1e-5, 1e-3]), "num_heads": n, "intermediate_size": rng.choice([None, 32, 57])}
    c["hidden_ratio"] = rng.choice([1, 2, 3, 4])
    width = c["intermediate_size"] or 256 * -(-(H * c["hidden_ratio"] * 2 // 3) // 256)
    softmax = {}
    if family == "transformer":
        c |= softmax_entry(rng, H) | {"qk_norm": chance(rng)}
        softmax = dict.fromkeys(range(L), c)
    elif chance(rng):
        entries = []
        for _ in range(rng.choice([1, 2])):
            layers = [i for i in range(L) if i not in softmax and chance(rng, 0.4)]
            if layers:
                entries.append(softmax_entry(rng, H) | {"layers": layers})
                softmax |= dict.fromkeys(layers, entries[-1])
        if entries:
            c["attn"] = entries[0] if len(entries) == 1 and chance(rng) else entries
    kv = rng.choice([k for k in range(1, n + 1) if n % k == 0])
    if family == "gated_deltanet":
        c |= {"head_dim": rng.choice([5, 8, 16, 24, 46]), "num_v_heads": rng.choice([None, n, 2 * n, 3 * n]), "expand_v": rng.choice([0.5, 1.0, 1.5, 2]),
              "use_gate": chance(rng, 0.7), "use_short_conv": chance(rng), "conv_size": rng.choice([2, 3, 4, 6]), "allow_neg_eigval": chance(rng, 0.4),
              "output_gate_activation": rng.choice(["swish", "silu", "sigmoid"])}  # fmt: skip
    elif family in ("gla", "retnet"):
        even = 2 if family == "retnet" else 1  # its keys rotate
        expand = [e for e in (0.5, 1.0, 1.5, 2.0) if int(H * e) % (n * even) == 0]
        c |= {"num_kv_heads": rng.choice([None, kv]), "expand_k": rng.choice(expand or [2.0]), "expand_v": rng.choice([e for e in (0.5, 1.0, 2.0) if int(H * e) % n == 0])}
        kv = c["num_kv_heads"] or n
    if family == "gla":
        c |= {"use_output_gate": chance(rng, 0.7), "clamp_min": rng.choice([None, -0.01, -0.2])}
    w.ends(c, "model.embeddings")
    for i in range(L):
        p, a = f"model.layers.{i}.", f"model.layers.{i}.attn."
        w.layer(p, H, width, ("attn_norm", "mlp_norm"))
        if i in softmax:
            own = softmax[i]
            heads = own["num_heads"]
            w.attention(a, H, heads, own.get("num_kv_heads", heads), H // heads, normed=own.get("qk_norm", False))
            if own.get("qkv_bias", False):
                for name in "qkv":
                    w[f"{a}{name}_proj.bias"] = 0.3 * torch.randn(len(w[f"{a}{name}_proj.weight"]))
        elif family == "gated_deltanet":
            dv = int(c["head_dim"] * c["expand_v"])
            w.delta(a, H, n, n, c["num_v_heads"] or n, c["head_dim"], dv, c["conv_size"] if c["use_short_conv"] else 0, c["use_gate"])
        else:
            K, V = int(H * c["expand_k"]), int(H * c["expand_v"])
            gated = c.get("use_output_gate", True)
            for name, rows in (("q", K), ("k", K * kv // n), ("v", V * kv // n)):
                w.matrix(f"{a}{name}_proj", rows, H)
            w.matrix(a + "o_proj", H, V)
            w.norm(a + ("g_norm_swish_gate" if gated else "g_norm"), V // n)
            if gated:
                w.matrix(a + "g_proj", V, H)
            if family == "gla":
                w.matrix(a + "gk_proj.0", 16, H)
                w.matrix(a + "gk_proj.1", K * kv // n, 16, bias=True)
                w[a + "gk_proj.1.bias"] -= 150.0 * (torch.rand(K * kv // n) < 0.1)
    expand = {"gla": (0.5, 1), "retnet": (1, 2)}.get(family, (None, 2))
    return thin(rng, c, num_kv_heads=None, intermediate_size=None, hidden_ratio=2 if family == "retnet" else 4, norm_eps=1e-6, expand_k=expand[0],
                expand_v=expand[1], num_v_heads=None, use_gate=True, use_short_conv=True, conv_size=4, allow_neg_eigval=False, qk_norm=False,
                output_gate_activation="swish", use_output_gate=True, clamp_min=None, tie_word_embeddings=False), w  # fmt: skip


def draw_mamba2(rng):
    c, w = sizes(rng), Tensors()
    own = draw_mamba(rng, c["hidden_size"]) | {"D_has_hdim": chance(rng, 0.3)}
    c |= {"model_type": "mamba2", "norm_eps": rng.choice([1e-6, 1e-5, 1e-3]), "hidden_act": "silu"} | thin_mamba(rng, own)
    w.ends(c, "backbone.embeddings", "backbone.norm_f")
    for i in range(c["num_hidden_layers"]):
        w.norm(f"backbone.layers.{i}.norm", c["hidden_size"])
        w.mamba(f"backbone.layers.{i}.mixer.", c["hidden_size"], own, own["D_has_hdim"])
    return thin(rng, c, norm_eps=1e-5, D_has_hdim=False, tie_word_embeddings=False), w


KINDS = {"hybrid": draw_hybrid, "orthros_hybrid": draw_orthros_hybrid, "orthros_h": draw_orthros_h, "minicpm": draw_minicpm, "mamba2": draw_mamba2}
KINDS |= {family: lambda rng, family=family: draw_fla(rng, family) for family in ("transformer", "gated_deltanet", "gla", "retnet")}

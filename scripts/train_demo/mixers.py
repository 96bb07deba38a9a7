"""Token mixers in chunk form: nothing here runs token by token, and all shapes but the number of chunks are fixed.

Rows are [B·T, channels]. A window layer and the work inside a chunk see blocks of 64 tokens, so they cost and compile
the same whatever the length; only full attention and the carrying of states between chunks know T.
"""
import torch
import torch.nn.functional as F

CHUNK = 64


def rms(x, weight, eps=1e-6):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def linear(x, weight):
    return F.linear(x, weight.to(x.dtype))


def rotate(x, cos, sin):
    """Half-split rotation of the first 2·cos.shape[-1] channels; x [N, heads, d], tables [N, r/2]."""
    r = 2 * cos.shape[-1]
    c, s, y = cos[:, None], sin[:, None], x.float()
    a, b = y[..., :r // 2], y[..., r // 2:r]
    return torch.cat([a * c - b * s, b * c + a * s, y[..., r:]], -1).to(x.dtype)


def full_attention(q, k, v, T):
    """Causal attention of [N, heads, d] rows, N = B·T."""
    group = q.shape[1] // k.shape[1]
    heads = lambda t: t.view(-1, T, *t.shape[1:]).transpose(1, 2)
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    o = F.scaled_dot_product_attention(heads(q), heads(k), heads(v), is_causal=True)
    return o.transpose(1, 2).reshape(q.shape)


def window_mask(T, tokens, window, device):
    """Who of 2·window keys each of `window` queries sees, per block of window tokens: [blocks, 1, w, 2w]."""
    i, j = torch.arange(window, device=device)[:, None], torch.arange(2 * window, device=device)[None]
    near = (j > i) & (j <= i + window)
    first = (torch.arange(tokens // window, device=device) % (T // window) == 0)[:, None, None]
    return (near & ~(first & (j < window)))[:, None]


def window_attention(q, k, v, mask):
    """Keys t−w+1…t: every block of w queries sees its own keys and the block's before."""
    N, H, d = q.shape
    w = mask.shape[2]
    group = H // k.shape[1]

    def reach(t):
        t = t.repeat_interleave(group, 1).view(N // w, w, H, d)
        return torch.cat([t.roll(1, 0), t], 1).transpose(1, 2)
    scores = (q.view(N // w, w, H, d).transpose(1, 2) @ reach(k).transpose(2, 3)).float() * d ** -0.5
    p = scores.masked_fill(~mask, -1e30).softmax(-1).to(v.dtype)
    return (p @ reach(v)).transpose(1, 2).reshape(N, H, d)


def causal_conv(x, weight, t, bias=None):
    """Depthwise convolution over the last four tokens, then SiLU. x [N, C]; t [N, 1]: index inside the batch's row."""
    w = weight[:, 0].to(x.dtype)
    u = sum(x.roll(j, 0).masked_fill(t < j, 0) * w[:, 3 - j] for j in range(4))
    return F.silu(u if bias is None else u + bias.to(x.dtype))


class InverseUnitLower(torch.autograd.Function):
    """(I + A)^-1 for strictly lower triangular A [n, C, C]: recursion over blocks, gradient −XᵀGXᵀ."""

    @staticmethod
    def forward(ctx, A):
        n, C = A.shape[0], A.shape[-1]
        X, s = torch.eye(C, device=A.device).repeat(n, 1, 1), 1
        while s < C:
            shape = (n, C // (2 * s), 2 * s, C // (2 * s), 2 * s)
            blocks = lambda t: t.view(shape).diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2)
            a, x = blocks(A), blocks(X)
            x[..., s:, :s] = -(x[..., s:, s:] @ a[..., s:, :s] @ x[..., :s, :s])
            s *= 2
        ctx.save_for_backward(X)
        return X

    @staticmethod
    def backward(ctx, G):
        X, = ctx.saved_tensors
        return -(X.mT @ G @ X.mT).tril(-1)


def chunks(t):
    """[N, H, d] → [N/64, H, 64, d] in float32."""
    return t.float().view(-1, CHUNK, *t.shape[1:]).transpose(1, 2)


def decays(log_decay):
    """Per chunk: cumulated log decay [n, H, C, 1] and e^(G_i − G_j) for j ≤ i, 0 above."""
    G = chunks(log_decay[..., None]).cumsum(2)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=G.device).tril()
    return G, (G - G.transpose(2, 3)).masked_fill(~lower, -1e30).exp()


def gated_delta(readers, k, v, log_decay, beta, T):
    """Gated DeltaNet; several query sets (Orthros-H's output stream) may read one state. [N, H, d] each."""
    N, H, d = k.shape
    G, decay = decays(log_decay)
    k, v, beta = chunks(k), chunks(v), chunks(beta[..., None])
    X = InverseUnitLower.apply((beta * (k @ k.mT) * decay).tril(-1).reshape(-1, CHUNK, CHUNK)).view(-1, H, CHUNK, CHUNK)
    U, W = X @ (beta * v), X @ (beta * G.exp() * k)
    keys, last = (k * (G[:, :, -1:] - G).exp()).mT, G[:, :, -1:].exp()
    steps = lambda t: t.view(N // T, T // CHUNK, *t.shape[1:]).unbind(1)
    S, states, news = torch.zeros(N // T, H, d, d, device=k.device), [], []
    for u, w, key, e in zip(steps(U), steps(W), steps(keys), steps(last)):
        new = u - w @ S
        states.append(S)
        news.append(new)
        S = e * S + key @ new
    S, D = torch.stack(states, 1).flatten(0, 1), torch.stack(news, 1).flatten(0, 1)
    read = lambda q: ((q * G.exp()) @ S + ((q @ k.mT) * decay) @ D).transpose(1, 2).reshape(N, H, d)
    return [read(chunks(q)) for q in readers]


def state_space(C, B, x, log_decay, T):
    """Mamba-2 without its skip: y_t = S_t C_t, S_t = e^(a_t) S_(t−1) + x_t B_tᵀ. x [N, H, P] is dt·x; B, C [N, 1, n]."""
    N, H, P = x.shape
    G, decay = decays(log_decay)
    C, B, x = chunks(C), chunks(B), chunks(x)
    inside = ((C @ B.mT) * decay) @ x
    own = (B * (G[:, :, -1:] - G).exp()).mT @ x  # what each chunk adds, [n, H, state, P]
    n = T // CHUNK
    total = G[:, :, -1, 0].view(N // T, n, H).cumsum(1).transpose(1, 2)  # up to each chunk's end
    before = F.pad(total, (1, -1))
    carry = (before[..., :, None] - total[..., None, :])
    earlier = torch.ones(n, n, dtype=torch.bool, device=x.device).tril(-1)
    carry = carry.masked_fill(~earlier, -1e30).exp()
    S = torch.einsum("bhnm,bmhsp->bnhsp", carry, own.view(N // T, n, *own.shape[1:])).flatten(0, 1)
    return (inside + (C * G.exp()) @ S).transpose(1, 2).reshape(N, H, P)

"""Tensors of attention and the correct results: the reference in float64, and errors against it."""

try:
    import torch
except ImportError:
    torch = None

TOKENS = 16384  # batch * seqlen of a dense point
WIDTH = 2048  # heads * head_dim


def dtype_of(word):
    """The torch type of kgen's name; FP8 kernels write bf16."""
    return {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp8": torch.bfloat16}[word]


def dense_shape(head_dim, seqlen, causal):
    """The sizes of a dense point, named as in `kgen bench`: TOKENS in total, WIDTH / head dim heads."""
    heads = max(1, WIDTH // head_dim)
    shape = {"batch": max(1, TOKENS // seqlen), "heads": heads, "heads_k": heads, "seqlen_q": seqlen,
        "seqlen_k": seqlen}
    return {**shape, "head_dim": head_dim, "causal": int(causal)}


def mask(causal):
    return "causal" if causal else "full"


def flops(shape, products=2):
    """2 * products * B * H * Sq * Sk * D with the true head dim, halved for causal: 2 products forward, 5 backward."""
    work = 2 * products * shape["batch"] * shape["heads"] * shape["seqlen_q"] * shape["seqlen_k"] * shape["head_dim"]
    return work / 2 if shape["causal"] else work


def normal(*shape, dtype="bf16", times=1.0, generator=None):
    """Standard normal numbers times a factor, rounded to the dtype."""
    return (torch.randn(*shape, device="cuda", generator=generator) * times).to(dtype_of(dtype))


def kernel_name(kind, head_dim, dtype, causal, target, features=()):
    return "_".join(["flash", kind, f"hdim{head_dim}", dtype, *(["causal"] if causal else []), *features, target])


def quantised(x):
    """(batch, seqlen, heads, head_dim) in E4M3, and its descales (batch, heads): amax / 448 each."""
    scale = x.abs().amax(dim=(1, 3)).float() / 448
    return (x.float() / scale[:, None, :, None]).to(torch.float8_e4m3fn), scale


def exact(q, k, v, *, scale=None, causal=False, window=None, softcap=0.0, sinks=None, at=None,
        kept=1.0):
    """O (heads, rows, head_dim_v), LSE (heads, rows) and each row's largest weight, in float64, of Q (heads, rows,
    head_dim) and K and V (key heads, keys, …). `at` is the position of the first row among the keys; by default
    the last row is at the last key, as in FlashAttention. The weights are multiplied by `kept` before V."""
    q, k, v = (x.double() for x in (q, k, v))
    (heads, rows, dim), (heads_k, keys, _) = q.shape, k.shape
    s = (q.reshape(heads_k, -1, dim) @ k.mT).view(heads, rows, keys) * (dim**-0.5 if scale is None else scale)
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    row = torch.arange(rows, device=q.device)[:, None] + (keys - rows if at is None else at)
    key = torch.arange(keys, device=q.device)
    left, right = window or (-1, -1)
    if left >= 0:
        s = s.masked_fill(key < row - left, float("-inf"))
    if causal or right >= 0:
        s = s.masked_fill(key > row + (0 if causal else right), float("-inf"))
    if sinks is not None:
        s = torch.cat([s, sinks.double()[:, None, None].expand(heads, rows, 1)], -1)
    lse = s.logsumexp(-1)
    p = (s - lse[..., None]).exp()[..., :keys]
    o = ((p * kept).reshape(heads_k, -1, keys) @ v).view(heads, rows, -1)
    return o, lse, p.amax(-1)


def norm_error(found, expected):
    """‖found - expected‖ / ‖expected‖; NaN if anything is NaN."""
    return ((found.double() - expected.double()).norm() / expected.double().norm()).item()


def largest_error(found, expected):
    """The largest difference divided by the largest element; NaN if anything is NaN."""
    return ((found.double() - expected.double()).abs().max() / expected.double().abs().max()).item()


def worst(errors):
    """The largest value; NaN if one is NaN."""
    errors = list(errors)
    return max(errors) if all(error == error for error in errors) else float("nan")


def rotated(x, cos, sin, interleaved=False):
    """Rows of heads (rows, heads, head_dim) rotated in float32; cos and sin (rows, columns) apply to the leading
    columns, in halves or in pairs."""
    width = 2 * cos.shape[-1]
    turned, rest = x[..., :width].float(), x[..., width:].float()
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.chunk(2, dim=-1)
    c, s = cos.float()[:, None], sin.float()[:, None]
    a, b = a * c - b * s, b * c + a * s
    turned = torch.stack((a, b), dim=-1).flatten(-2) if interleaved else torch.cat((a, b), dim=-1)
    return torch.cat((turned, rest), dim=-1)


def rotary_tables(rows, dim):
    """cos and sin (rows, dim / 2) in bf16, base 10000."""
    angle = torch.arange(rows, device="cuda")[:, None] * 10000.0 ** (-torch.arange(0, dim, 2, device="cuda") / dim)
    return angle.cos().bfloat16(), angle.sin().bfloat16()

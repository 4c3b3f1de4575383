"""Inputs of a call: normal numbers, K and V in pages where the call has them."""

from dataclasses import dataclass

from kgen_peers.gpu import DTYPES, torch


@dataclass
class Tensors:
    """(batch, seqlen, heads, head dim); K and V with pages (pages, page size, heads, head dim)."""

    q: object
    k: object
    v: object
    dout: object = None
    # (batch, pages of a sequence), or None.
    table: object = None

    def keys(self, sequence, head):
        """K and V of a sequence and a key head as (seqlen, head dim)."""
        if self.table is None:
            return self.k[sequence, :, head], self.v[sequence, :, head]
        pages = self.table[sequence].long()
        return self.k[pages, :, head].flatten(0, 1), self.v[pages, :, head].flatten(0, 1)


def draw(problem, seed, device):
    """The inputs of a call."""
    generator = torch.Generator(device).manual_seed(seed)
    dtype = DTYPES[problem.dtype]

    def normal(*shape, dtype=dtype):
        # 8-bit types are not drawn directly.
        wide = torch.float32 if problem.dtype == "fp8" else dtype
        return torch.randn(*shape, generator=generator, device=device, dtype=wide).to(dtype)

    p = problem
    rows, table = (p.batch, p.seqlen_k), None
    if p.page_size:
        each = -(-p.seqlen_k // p.page_size)
        rows = (p.batch * each, p.page_size)
        order = torch.randperm(p.batch * each, generator=generator, device=device)
        table = order.to(torch.int32).view(p.batch, each)
    q = normal(p.batch, p.seqlen_q, p.heads, p.head_dim)
    k, v = normal(*rows, p.heads_k, p.head_dim), normal(*rows, p.heads_k, p.head_dim_v)
    dout = normal(p.batch, p.seqlen_q, p.heads, p.head_dim_v) if p.is_backward else None
    return Tensors(q, k, v, dout, table)

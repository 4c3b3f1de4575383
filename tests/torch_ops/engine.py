"""Calls to `_vllm_fa3_C.fwd` like those of vLLM's decoder: a batch of sequences whose keys are in pages of a cache that
interleaves K and V, and queries that are a view of one projection."""

from dataclasses import dataclass, field

import torch

from reference import Asked, assert_close

FP8 = torch.float8_e4m3fn


@dataclass
class Step:
    """Queries and keys of each sequence. Unused entries of the page table are invalid, unused pages hold NaN."""

    queries: list
    keys: list
    heads: int = 4
    heads_k: int = 2
    dim: int = 64
    page: int = 16
    dtype: torch.dtype = torch.bfloat16
    cache_dtype: torch.dtype | None = None
    width: int | None = None
    spare_tokens: int = 0
    seed: int = 0
    asked: Asked = None
    tensors: dict = field(default_factory=dict)

    def __post_init__(self):
        torch.manual_seed(self.seed)
        self.asked = self.asked or Asked(self.dim**-0.5)
        self.cache_dtype = self.cache_dtype or self.dtype
        tokens = sum(self.queries) + self.spare_tokens
        fused = torch.randn(tokens, (self.heads + 2 * self.heads_k) * self.dim)
        q = fused.to(torch.bfloat16 if self.dtype == FP8 else self.dtype)[:, : self.heads * self.dim].view(tokens, self.heads, self.dim)
        self.q = q.contiguous().to(FP8) if self.dtype == FP8 else q
        self.fill_cache()
        starts = [0]
        for count in self.queries:
            starts.append(starts[-1] + count)
        self.starts = starts
        self.cu_seqlens_q = torch.tensor(starts, dtype=torch.int32)
        self.used = torch.tensor(self.keys, dtype=torch.int32)
        self.out = torch.full((tokens, self.heads, self.dim), torch.nan, dtype=torch.bfloat16 if self.dtype == FP8 else self.dtype)

    def fill_cache(self):
        pages = [-(-count // self.page) for count in self.keys]
        width = self.width or max([1, *pages])
        order = torch.randperm(sum(pages) + 2)
        blocks = torch.full((len(order), self.page, self.heads_k, 2 * self.dim), torch.nan)
        table = torch.full((len(self.keys), width + 3), 1 << 20, dtype=torch.int32)[:, :width]  # non-contiguous
        next_page = 0
        for sequence, count in enumerate(self.keys):
            for index in range(pages[sequence]):
                block = int(order[next_page])
                next_page += 1
                table[sequence, index] = block
                rows = min(self.page, count - index * self.page)
                blocks[block, :rows] = torch.randn(rows, self.heads_k, 2 * self.dim)
        cache = blocks.to(self.cache_dtype)
        self.k, self.v = cache[..., : self.dim], cache[..., self.dim :]
        self.page_table = table

    def rows_of(self, sequence):
        """Keys and values of a sequence, in order: (keys, key heads, D) each."""
        count = self.keys[sequence]
        pages = self.page_table[sequence, : -(-count // self.page)].long()
        return [t[pages].reshape(-1, self.heads_k, self.dim)[:count] for t in (self.k, self.v)]

    def arguments(self, *, metadata=None, num_splits=0, max_q=None, max_k=None, descales=(1.0, 1.0, 1.0), s_aux=None, out=True):
        """The 37 arguments of `fwd`."""
        batch = len(self.queries)
        q_descale, k_descale, v_descale = (torch.tensor([factor]).expand(batch, self.heads_k) for factor in descales)
        left, right = self.asked.window
        softcap = self.asked.softcap or 0  # an int if unset, as in vLLM
        return [
            self.q, self.k, self.v, None, None, None, self.out if out else None, self.cu_seqlens_q, None, None, None, self.used,
            max_q or max(self.queries), max_k or max(self.keys), self.page_table, None, None, None, None, None,
            q_descale, k_descale, v_descale, self.asked.scale, self.asked.causal, left, right, softcap, True, metadata, num_splits, None, 0,
            s_aux, 1, 0, None,
        ]  # fmt: skip

    def metadata_arguments(self, *, num_splits=0, max_q=None, max_k=None, dtype=None):
        """The 23 arguments of `get_scheduler_metadata`."""
        left, right = self.asked.window
        return [
            len(self.queries), max_q or max(self.queries), max_k or max(self.keys), self.heads, self.heads_k, self.dim, self.dim,
            dtype or self.dtype, self.used, self.cu_seqlens_q, None, None, None, None, self.page, 0, self.asked.causal, left, right,
            self.asked.softcap > 0, num_splits, None, 0,
        ]  # fmt: skip

    def check(self, out, lse, descales=(1.0, 1.0, 1.0)):
        """Checks every sequence's rows of O and LSE; O's rows outside of sequences must be untouched."""
        for sequence, (first, last) in enumerate(zip(self.starts, self.starts[1:])):
            k, v = self.rows_of(sequence)
            q, k, v = (t.double() * factor for t, factor in zip((self.q[first:last], k, v), descales))
            assert_close(out[first:last], lse[:, first:last], q, k, v, self.asked)
        assert out[self.starts[-1] :].isnan().all(), "rows of no sequence were written"

"""A call of attention as kgen asks for it. No torch here."""

from dataclasses import dataclass

from kgen_peers.errors import Refused

# Tolerated relative error of a sampled row, as for kgen's own kernels.
LARGEST_ERROR, LARGEST_ERROR_FP8 = 0.02, 0.08

# Launches on a cold L2 rotate through copies that are together this many times its size.
COLD_L2_TIMES, MOST_COPIES = 10, 512

BYTES = {"bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True)
class Problem:
    """Sizes of a call, and what it computes."""

    kind: str
    head_dim: int
    head_dim_v: int
    dtype: str
    causal: bool
    features: tuple
    batch: int
    heads: int
    heads_k: int
    seqlen_q: int
    seqlen_k: int
    page_size: int

    @classmethod
    def of(cls, point):
        if "head_dim" not in point or "seqlen_q" not in point["shape"]:
            raise Refused(f"`{point['kind']}` is no attention")
        known = {"kind", "head_dim", "dtype", "causal"}
        sizes = {"page_size": 0, **point["shape"]}
        features = tuple(word if isinstance(word, str) else "score" for word in point.get("features", ()))
        return cls(**{name: point[name] for name in known}, head_dim_v=point.get("head_dim_v", point["head_dim"]),
            features=features, **sizes)

    @property
    def scale(self):
        return self.head_dim ** -0.5

    @property
    def is_backward(self):
        return self.kind == "bwd"

    @property
    def is_decoding(self):
        return self.kind == "fwd_split"

    @property
    def is_masked(self):
        """The mask hides anything: the last query sees all keys."""
        return self.causal and self.seqlen_q > 1

    @property
    def groups(self):
        return self.heads // self.heads_k

    @property
    def largest_error(self):
        return LARGEST_ERROR_FP8 if self.dtype == "fp8" else LARGEST_ERROR

    def visible(self, row):
        """Number of keys that a query sees; the mask is aligned to the last query and the last key."""
        return max(0, min(self.seqlen_k, row + 1 + self.seqlen_k - self.seqlen_q)) if self.causal else self.seqlen_k

    def picks(self, heads, rows):
        """(sequence, head, row) of the rows that are compared with float64."""
        places = [(b, h, i) for b, h in ((0, 0), (self.batch - 1, heads - 1)) for i in (0, rows // 2, rows - 1)]
        return list(dict.fromkeys(places))

    def copies(self, l2_bytes):
        """(number of tensor sets to rotate through, whether they leave the L2 cold)."""
        if not self.is_decoding:
            return 1, False
        row = (self.head_dim + self.head_dim_v) * BYTES[self.dtype]
        kv_bytes = self.batch * self.heads_k * self.seqlen_k * row
        copies = min(max(-(-COLD_L2_TIMES * l2_bytes // kv_bytes), 2), MOST_COPIES)
        return copies, copies * kv_bytes > 2 * l2_bytes

    def refuse(self, *, dtypes=("bf16", "fp16"), features=(), backward=True, decoding=True, aligned_to_top=False,
            equal_head_dims=False):
        """Raises `Refused` for what a peer does not compute, by name."""
        if self.dtype not in dtypes:
            raise Refused(f"it takes {', '.join(dtypes)}, not {self.dtype}")
        for feature in self.features:
            if feature not in features:
                raise Refused(f"it is not called with the feature `{feature}`")
        if self.is_backward and not backward:
            raise Refused("its backward pass is not called")
        if self.is_decoding and not decoding:
            raise Refused("it is not called for split keys")
        if aligned_to_top and self.is_masked and self.seqlen_q != self.seqlen_k:
            raise Refused("its causal mask is aligned to the first query and key, not to the last")
        if equal_head_dims and self.head_dim != self.head_dim_v:
            raise Refused("its heads of V are as long as those of K")

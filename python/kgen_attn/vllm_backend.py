"""vLLM's FlashAttention backend, with the attention of decoders computed by kgen.

vLLM still determines the layout of the KV cache, writes it, and creates the metadata of a step. Context parallelism,
cascades and prefix masks are refused, and encoders are left to other backends.
"""

from __future__ import annotations

import torch

from . import vllm as plugin

plugin.check_version()

from vllm.v1.attention.backend import AttentionCGSupport, AttentionType  # noqa: E402
from vllm.v1.attention.backends.flash_attn import (  # noqa: E402
    FlashAttentionBackend,
    FlashAttentionImpl,
    FlashAttentionMetadataBuilder,
)

from . import arguments  # noqa: E402
from .forward import forward  # noqa: E402

#: The longest length passed to a call is rounded up to a multiple of this: an upper bound is enough, and calls with the
#: same plan are cheaper.
_LENGTHS = 256

_FP8 = ("fp8", "fp8_e4m3")


class KgenImpl(FlashAttentionImpl):
    """The attention of one layer."""

    def __init__(self, *args, sinks=None, **kwargs) -> None:
        super().__init__(*args, **kwargs)  # the base class accepts sinks only on Hopper
        self.sinks = sinks
        # Kernels that read an FP8 cache read 16-bit queries.
        self.supports_quant_query_input = False
        if self.dcp_world_size > 1 or self.pcp_world_size > 1:
            raise NotImplementedError("kgen_attn's backend has no context parallelism")
        if self.attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"kgen_attn's backend is for decoders; this layer's attention is `{self.attn_type}`")

    def forward(
        self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None
    ) -> torch.Tensor:
        """Attention of (tokens, heads, head size) to the cache, written to `output`."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("kgen_attn's backend does not quantise its output")
        if attn_metadata is None:  # a profiling run, in which vLLM measures the memory that a model needs
            return output.fill_(0)
        step = attn_metadata
        if step.use_cascade or isinstance(step.causal, torch.Tensor) or step.mm_prefix_range_tensor is not None or step.rswa_prefix_lens is not None:
            raise NotImplementedError("kgen_attn's backend has no cascades and no masks by prefixes or sequences")
        tokens = step.num_actual_tokens
        k, v = kv_cache.transpose(1, 2).split(self.head_size, dim=-1)
        k_descale = v_descale = None
        if self.kv_cache_dtype in _FP8:
            k, v = k.view(torch.float8_e4m3fn), v.view(torch.float8_e4m3fn)
            shape = (step.query_start_loc.shape[0] - 1, self.num_kv_heads)
            k_descale, v_descale = layer._k_scale.expand(shape), layer._v_scale.expand(shape)
        rows = step.block_table.shape[1] * k.shape[1]
        longest = min(rows, (step.max_seq_len + _LENGTHS - 1) // _LENGTHS * _LENGTHS)
        window = self.sliding_window if step.sliding_window is None else step.sliding_window
        causal, left, right = arguments.windows(step.causal, window, step.max_query_len, longest)
        # fmt: off
        optional = (step.query_start_loc, None, None, step.seq_lens, step.block_table, None, None, self.alibi_slopes,
                    arguments.sinks(self.sinks), None, k_descale, v_descale, None, None)
        # fmt: on
        numbers = (step.max_query_len, longest, self.scale, causal, left, right, 0, float(self.logits_soft_cap), 0)
        forward(query[:tokens], k, v, optional, numbers, with_lse=False, out=output[:tokens])
        return output


class KgenMetadataBuilder(FlashAttentionMetadataBuilder):
    """vLLM's metadata builder, without the metadata for FlashAttention-3's kernels."""

    # A graph is replayed with at most the number of queries per sequence that it was captured with.
    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.aot_schedule = False

    def use_cascade_attention(self, *args, **kwargs) -> bool:
        """False: no cascade; a shared prefix is read once for each sequence."""
        return False


class KgenBackend(FlashAttentionBackend):
    """The interface that vLLM requires of a backend."""

    @staticmethod
    def get_name() -> str:
        """A name of vLLM's enumeration of backends; this one is reserved for backends of other packages."""
        return "CUSTOM"

    @staticmethod
    def get_impl_cls():
        """The class of a layer's attention."""
        return KgenImpl

    @staticmethod
    def get_builder_cls():
        """The class of a step's metadata."""
        return KgenMetadataBuilder

    @classmethod
    def supports_attn_type(cls, attn_type) -> bool:
        """True for attention of decoders only."""
        return attn_type == AttentionType.DECODER

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        """True for head sizes for which kernels can be generated; the library may lack some of these kernels."""
        return head_size % 8 == 0 and 16 <= head_size <= 256

    @classmethod
    def supports_kv_cache_dtype(cls, kv_cache_dtype) -> bool:
        """True for caches with 16-bit elements and E4M3."""
        return kv_cache_dtype in (None, "auto", "float16", "bfloat16", *_FP8)

    @classmethod
    def supports_sink(cls) -> bool:
        """True: sinks are supported on every GPU."""
        return True

    @classmethod
    def supports_mm_prefix(cls) -> bool:
        """False: prefixes with bidirectional attention are not supported."""
        return False

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        """False: the kernel for a sequence depends on the batch."""
        return False

    @classmethod
    def supports_per_head_quant_scales(cls) -> bool:
        """False: vLLM's per-head scales require FP8 queries."""
        return False

    @classmethod
    def supports_combination(cls, *args, **kwargs) -> None:
        """None: all supported options can be combined."""
        return None

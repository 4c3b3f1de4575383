"""kgen as an attention implementation of transformers: after register(kgen), `attn_implementation="kgen"` selects it.

Padding masks (batch, keys) are honoured by packing the unmasked tokens; packed batches come with cu_seq_lens_q and its
companions, as for transformers' own flash attention, or with position ids that restart. What kgen does not support is
refused.
"""

import torch
import torch.nn.functional as F
from kgen_torch import Packing, attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import flash_attention_mask


def register(kgen, name="kgen"):
    """Makes `name` an attention implementation that calls `kgen`."""

    def forward(module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None, **kwargs):
        for refused in ("position_bias", "softcap", "s_aux"):
            if kwargs.get(refused) is not None:
                raise ValueError(f"`{name}` has no `{refused}`")
        window = kwargs.get("sliding_window")
        if window is not None and window < key.shape[2]:
            raise ValueError(f"`{name}` has no `sliding_window`: {window} of {key.shape[2]} keys")
        if dropout:
            raise ValueError(f"`{name}` has no dropout; set it to 0 in the model's configuration")
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        q, k, v = (t.transpose(1, 2) for t in (query, key, value))
        causal = bool(causal) and q.shape[1] > 1  # the mask is aligned to the bottom right: one query sees every key
        if attention_mask is not None:
            return padded(kgen, q, k, v, causal, scaling, attention_mask), None
        return attention(kgen, q, k, v, causal, scaling, packing_of(q, kwargs)), None

    AttentionInterface.register(name, forward)
    AttentionMaskInterface.register(name, flash_attention_mask)


def packing_of(q, kwargs):
    """The packing given by a model's caller, or derived from position ids; None for equal lengths."""
    cu_q, cu_k = kwargs.get("cu_seq_lens_q"), kwargs.get("cu_seq_lens_k")
    if cu_q is not None:
        if q.shape[0] != 1:
            raise ValueError(f"`cu_seq_lens_q` goes with a batch of one; given {q.shape[0]}")
        return Packing(cu_q, cu_k, int(kwargs["max_length_q"]), int(kwargs["max_length_k"]))
    positions = kwargs.get("position_ids")
    if positions is None or positions.shape[1] == 1 or q.shape[0] != 1:
        return None
    return remembered(positions, "_kgen_packing", lambda: packing_of_positions(positions))


def packing_of_positions(positions):
    (starts,) = torch.nonzero(positions[0] == 0, as_tuple=True)
    if starts.numel() < 2:
        return None
    end = starts.new_tensor([positions.shape[1]])
    return packing_of_lengths(torch.diff(starts, append=end), torch.diff(starts, append=end))


def packing_of_lengths(lengths_q, lengths_k):
    """A packing of sequences of these lengths, without gaps."""
    cu_q, cu_k = (F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32) for lengths in (lengths_q, lengths_k))
    return Packing(cu_q, cu_k, int(lengths_q.max()), int(lengths_k.max()))


def remembered(tensor, name, make):
    """The result of `make` for a tensor that is passed to every layer of a model: computed once, stored with it."""
    if not hasattr(tensor, name):
        setattr(tensor, name, make())
    return getattr(tensor, name)


def padded(kgen, q, k, v, causal, scale, mask):
    """Attention where `mask` (batch, keys) says which tokens are valid. O of the others is 0."""
    if mask.dim() != 2 or mask.shape != k.shape[:2]:
        raise ValueError(f"`attention_mask` must be (batch, keys) = {tuple(k.shape[:2])}; given {tuple(mask.shape)}")
    rows = q.shape[1]

    def places():
        there = mask.bool()
        there_q = there[:, -rows:]
        places_q, places_k = (torch.nonzero(t.flatten(), as_tuple=True)[0] for t in (there_q, there))
        return places_q, places_k, packing_of_lengths(there_q.sum(1), there.sum(1))

    places_q, places_k, packing = remembered(mask, f"_kgen_places_{rows}", places)
    # One row of tokens; those of Q separately, since there may be more keys than queries.
    packed_q = q.flatten(0, 1)[places_q].unsqueeze(0)
    packed_k, packed_v = (t.flatten(0, 1)[places_k].unsqueeze(0) for t in (k, v))
    o = attention(kgen, packed_q, packed_k, packed_v, causal, scale, packing)
    whole = o.new_zeros((q.shape[0] * rows, *q.shape[2:]))
    return whole.index_copy(0, places_q, o[0]).unflatten(0, (q.shape[0], rows))

"""The models of scripts/real_models.py: shapes of well-known models, random weights, no downloads."""

import copy
import functools
import math
from dataclasses import dataclass, field

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    BertConfig,
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
)

# Initial weights give scores near 0, and attention that is nearly the mean of V. The scores of trained models differ;
# queries and keys are scaled so that scores have this standard deviation.
SPREAD_OF_SCORES = 2.0

#: Column titles of PyTorch's own attention, and its names for `use`.
SDPA = {"SDPA": "sdpa", "SDPA, math": "math"}
#: For models whose softcap or sinks SDPA does not support: transformers' own unfused attention, with a softmax in
#: float32, and one that rounds everything.
EAGER = {"eager": "eager", "plain": "plain"}


@dataclass(eq=False)
class Shape:
    """A model: its configuration, the attention it is compared with, and the batches it is tested with."""

    name: str
    config: object
    lengths: list  # lengths of the sequences in unequal batches
    dense: tuple  # batch size and length of equal ones
    long: int  # the long prompt
    peers: dict = field(default_factory=lambda: SDPA)
    causal: bool = True

    @property
    def judge(self):
        """The attention of the float64 model."""
        return "sdpa" if self.peers is SDPA else "plain"


GPT2 = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)
NO_ENDS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=0)
LLAMA = dict(
    head_dim=64,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    rope_parameters={
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    **NO_ENDS,
)
# A router that chooses among experts amplifies every rounding error: all experts are active.
GPT_OSS = dict(num_local_experts=4, num_experts_per_tok=4, head_dim=64, experts_implementation="eager", **NO_ENDS)
BERT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def shapes(tiny):
    """The models; `tiny` ones have the same structure and are small enough for the emulator."""
    return _tiny() if tiny else _real()


def _real():
    long = [512, 37, 300, 129, 1, 450]
    # Head dim 256 without a softcap, all query heads on one key head.
    gemma_1 = dict(
        vocab_size=256000, hidden_size=2048, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=1, head_dim=256,
        intermediate_size=16384, max_position_embeddings=8192, **NO_ENDS,
    )  # fmt: skip
    gemma_2 = dict(
        vocab_size=256000, hidden_size=2304, num_hidden_layers=26, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
        intermediate_size=9216, query_pre_attn_scalar=256, sliding_window=4096, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
        max_position_embeddings=8192, **NO_ENDS,
    )  # fmt: skip
    mistral = dict(
        vocab_size=32000, hidden_size=4096, num_hidden_layers=8, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
        intermediate_size=14336, sliding_window=4096, max_position_embeddings=32768, **NO_ENDS,
    )  # fmt: skip
    llama = dict(
        vocab_size=128256, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
        intermediate_size=8192, max_position_embeddings=131072, **LLAMA,
    )  # fmt: skip
    gpt_oss = dict(
        vocab_size=201088, hidden_size=2880, num_hidden_layers=6, num_attention_heads=64, num_key_value_heads=8,
        intermediate_size=2880, sliding_window=128, **GPT_OSS,
    )  # fmt: skip
    return [
        # Positions up to 4096 and some for generation, instead of 1024: the lengths that are timed.
        Shape("GPT-2 124M", GPT2Config(n_positions=4352, **GPT2), long, (2, 512), 900),
        Shape("Llama-3.2-1B", LlamaConfig(**llama), long[:4], (2, 512), 4000),
        Shape("Gemma-2 2B", Gemma2Config(**gemma_2), long[:4], (2, 512), 4400, EAGER),
        Shape("Gemma 2B, 6 of 18 layers", GemmaConfig(**gemma_1), long[:4], (2, 512), 4400),
        Shape("Mistral 7B, 8 of 32 layers", MistralConfig(**mistral), long[:4], (2, 512), 4400),
        Shape("gpt-oss 20B, 6 of 24 layers", GptOssConfig(**gpt_oss), long[:4], (2, 512), 2000, EAGER),
        Shape("BERT base", BertConfig(**BERT), [(37 * i) % 197 + 4 for i in range(24)], (4, 256), 0, causal=False),
    ]


def _tiny():
    few = ([5, 33, 12], (2, 40), 60)
    small = dict(vocab_size=211, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128)
    window = dict(sliding_window=16, head_dim=64, **NO_ENDS)
    gemma = dict(query_pre_attn_scalar=64, attn_logit_softcapping=50.0, final_logit_softcapping=30.0, **window)
    bert = small | BERT | dict(num_attention_heads=2)
    bert.pop("num_key_value_heads")
    return [
        Shape("GPT-2 124M", GPT2Config(n_layer=2, n_head=2, n_embd=128, vocab_size=211, n_positions=128, **GPT2), *few),
        Shape("Llama-3.2-1B", LlamaConfig(max_position_embeddings=128, **small, **LLAMA), *few),
        Shape("Gemma-2 2B", Gemma2Config(**small, **gemma), *few, EAGER),
        Shape("Gemma 2B", GemmaConfig(max_position_embeddings=128, **small, head_dim=64, **NO_ENDS), *few),
        Shape("Mistral 7B", MistralConfig(**small, **window), *few),
        Shape("gpt-oss 20B", GptOssConfig(sliding_window=16, **small, **GPT_OSS), *few, EAGER),
        Shape("BERT base", BertConfig(**bert), [5, 33, 12], (2, 40), 0, causal=False),
    ]


def model_of(shape, device, dtype, seed):
    """The model in evaluation mode, its weights determined only by `seed`; each call returns a new one."""
    return copy.deepcopy(initial_model(shape, device, seed)).to(dtype)


@functools.lru_cache(maxsize=1)
def initial_model(shape, device, seed):
    torch.manual_seed(seed)
    kind = AutoModelForCausalLM if shape.causal else AutoModelForMaskedLM
    with torch.device(device):
        model = kind.from_config(shape.config, attn_implementation="eager", dtype=torch.float32)
    sharpen(model)
    model.config.use_cache = False  # only generation needs it
    return model.to(device).eval()


def sharpen(model):
    """Scales the weights of queries and keys so that a normalised input gives SPREAD_OF_SCORES, at scale 1/sqrt(head dim)."""
    config = model.config
    factor = math.sqrt(SPREAD_OF_SCORES / config.hidden_size) / config.initializer_range
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in ("q_proj.weight", "k_proj.weight", "query.weight", "key.weight")):
                parameter.mul_(factor)
            elif "c_attn.weight" in name:  # (columns in, columns of Q, K and V)
                parameter[:, : parameter.shape[1] // 3 * 2].mul_(factor)
            elif "sinks" in name:  # as large as the scores, so that each row gives them part of its weight
                parameter.normal_(0, SPREAD_OF_SCORES)


class Batch:
    """Sequences of tokens, and the three ways to pass them to a model: equal, padded and packed."""

    def __init__(self, shape, lengths, device, seed):
        generator = torch.Generator().manual_seed(seed)
        self.causal = shape.causal
        self.device = device
        self.sequences = [chain(length, shape.config.vocab_size, generator) for length in lengths]
        self.lengths = torch.tensor(lengths)
        self.labels = torch.cat([self.labels_of(s, generator) for s in self.sequences]).to(device)
        self.tokens = int(self.lengths.sum())

    def labels_of(self, sequence, generator):
        """The label of each position: the next token, or for an encoder, at every seventh position, the token itself."""
        labels = torch.full_like(sequence, -100)
        if self.causal:
            labels[:-1] = sequence[1:]
        else:
            labels[:: 7] = sequence[:: 7]
        return labels

    def rotated(self, by):
        """A batch of the same sequences in rotated order: it starts with sequence number `by`."""
        other = copy.copy(self)
        parts = list(self.labels.split(self.lengths.tolist()))
        other.sequences = self.sequences[by:] + self.sequences[:by]
        other.lengths = self.lengths.roll(-by)
        other.labels = torch.cat(parts[by:] + parts[:by])
        return other

    def padded(self, left=False):
        """Arguments of a batch padded to its longest sequence, and the positions of its tokens."""
        longest = int(self.lengths.max())
        ids = torch.zeros((len(self.sequences), longest), dtype=torch.long)
        there = torch.zeros((len(self.sequences), longest), dtype=torch.bool)
        for b, sequence in enumerate(self.sequences):
            at = slice(longest - len(sequence), longest) if left else slice(0, len(sequence))
            ids[b, at], there[b, at] = sequence, True
        there = there.to(self.device)
        given = {"input_ids": ids.to(self.device)}
        if not bool(there.all()):
            given["attention_mask"] = there.long()
            given["position_ids"] = (there.long().cumsum(1) - 1).clamp(min=0)
        return given, there

    def packed(self, by_positions=False):
        """Arguments of a batch of one row that contains all sequences, described by cu_seq_lens or only by
        position ids."""
        ids = torch.cat(self.sequences)[None].to(self.device)
        positions = torch.cat([torch.arange(len(s)) for s in self.sequences])[None].to(self.device)
        given = {"input_ids": ids, "position_ids": positions}
        if not by_positions:
            cu = torch.nn.functional.pad(self.lengths.cumsum(0), (1, 0)).to(torch.int32).to(self.device)
            longest = int(self.lengths.max())
            given |= {"cu_seq_lens_q": cu, "cu_seq_lens_k": cu, "max_length_q": longest, "max_length_k": longest}
        return given, torch.ones_like(ids, dtype=torch.bool)


def chain(length, vocabulary, generator):
    """Learnable tokens: the next is nearly always a fixed function of the previous one, over a few hundred of them."""
    used = min(256, vocabulary)
    tokens = [int(torch.randint(used, (1,), generator=generator))]
    surprises = torch.rand(length, generator=generator) < 0.1
    others = torch.randint(used, (length,), generator=generator)
    for i in range(1, length):
        tokens.append(int(others[i]) if surprises[i] else (tokens[-1] * 5 + 17) % used)
    return torch.tensor(tokens)

"""The models of scripts/real_models.py: shapes of well-known ones, random weights, nothing downloaded."""

import copy
import functools
import math
from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertConfig, GPT2Config, LlamaConfig

# Initial weights give scores near 0, and attention that is nearly the mean of V. The scores of trained models differ;
# queries and keys are scaled so that theirs have this standard deviation.
SPREAD_OF_SCORES = 2.0


@dataclass(eq=False)
class Shape:
    """A model: its configuration, and the batches it is tested with."""

    name: str
    config: object
    causal: bool
    lengths: list  # of the sequences of unequal batches
    dense: tuple  # batch and length of those of equal ones
    speed: tuple  # of the timed ones


def shapes(tiny):
    """The three models; `tiny` ones have the same structure and are small enough for the emulator."""
    gpt2 = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)
    llama = dict(
        head_dim=64, rms_norm_eps=1e-5, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=0,
        rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
    )
    bert = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    if tiny:
        few = dict(lengths=[5, 33, 12], dense=(2, 40), speed=(2, 40))
        return [
            Shape("GPT-2 124M", GPT2Config(n_layer=2, n_head=2, n_embd=128, vocab_size=211, n_positions=128, **gpt2), True, **few),
            Shape(
                "Llama-3.2-1B",
                LlamaConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128, vocab_size=211, max_position_embeddings=128, **llama),
                True,
                **few,
            ),
            Shape("BERT base", BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, vocab_size=211, **bert), False, **few),
        ]
    short = [(37 * i) % 197 + 4 for i in range(24)]
    long = [512, 37, 300, 129, 1, 450]
    return [
        Shape("GPT-2 124M", GPT2Config(**gpt2), True, long, (2, 512), (8, 1024)),
        Shape(
            "Llama-3.2-1B",
            LlamaConfig(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, intermediate_size=8192, vocab_size=128256, max_position_embeddings=131072, **llama),
            True,
            long[:4],
            (2, 512),
            (2, 4096),
        ),
        Shape("BERT base", BertConfig(**bert), False, short, (4, 256), (64, 512)),
    ]


def model_of(shape, device, dtype, seed):
    """The model in evaluation mode, its weights determined by `seed` alone; each call returns a new one."""
    return copy.deepcopy(initial_model(shape, device, seed)).to(dtype)


@functools.lru_cache(maxsize=1)
def initial_model(shape, device, seed):
    torch.manual_seed(seed)
    kind = AutoModelForCausalLM if shape.causal else AutoModelForMaskedLM
    with torch.device(device):
        model = kind.from_config(shape.config, attn_implementation="sdpa", dtype=torch.float32)
    sharpen(model)
    model.config.use_cache = False  # except where generation asks for it
    return model.to(device).eval()


def sharpen(model):
    """Scales the weights of queries and keys so that a normalised input gives SPREAD_OF_SCORES, at scale 1/sqrt(head dim)."""
    config = model.config
    factor = math.sqrt(SPREAD_OF_SCORES / config.hidden_size) / config.initializer_range
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in ("q_proj.weight", "k_proj.weight", "query.weight", "key.weight")):
                parameter.mul_(factor)
            elif "c_attn.weight" in name:  # (columns in, those of Q, K and V)
                parameter[:, : parameter.shape[1] // 3 * 2].mul_(factor)


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
        """The same sequences, rotated."""
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
        """Arguments of a batch of one row that holds all sequences, given by cu_seq_lens or by position ids alone."""
        ids = torch.cat(self.sequences)[None].to(self.device)
        positions = torch.cat([torch.arange(len(s)) for s in self.sequences])[None].to(self.device)
        given = {"input_ids": ids, "position_ids": positions}
        if not by_positions:
            cu = torch.nn.functional.pad(self.lengths.cumsum(0), (1, 0)).to(torch.int32).to(self.device)
            longest = int(self.lengths.max())
            given |= {"cu_seq_lens_q": cu, "cu_seq_lens_k": cu, "max_length_q": longest, "max_length_k": longest}
        return given, torch.ones_like(ids, dtype=torch.bool)


def chain(length, vocabulary, generator):
    """Learnable tokens: nearly always the next is a fixed function of the previous one, over a few hundred of them."""
    used = min(256, vocabulary)
    tokens = [int(torch.randint(used, (1,), generator=generator))]
    surprises = torch.rand(length, generator=generator) < 0.1
    others = torch.randint(used, (length,), generator=generator)
    for i in range(1, length):
        tokens.append(int(others[i]) if surprises[i] else (tokens[-1] * 5 + 17) % used)
    return torch.tensor(tokens)

"""Parts of scripts/real_models.py: logits, losses and gradients compared with float64, and training curves."""

import copy
import functools
import statistics

import torch
import torch.nn.functional as F
from model_attention import RULE, Calls, errors, outcome, ratio, use
from model_shapes import EAGER, SDPA, Batch, model_of

#: With fewer elements the mean square is subject to chance too: a tiny model has four sinks.
LEAST_ELEMENTS = 64


def compare(report, shape, device, dtype, seed):
    """Forward, loss and gradients of equal, padded and packed batches."""
    model = model_of(shape, device, dtype, seed)
    judge = copy.deepcopy(model).double()
    loss_scale = 1024.0 if dtype == torch.float16 else 1.0
    equal = Batch(shape, [shape.dense[1]] * shape.dense[0], device, seed)
    unequal = Batch(shape, shape.lengths, device, seed + 1)
    ways_of_unequal = {
        "padded": unequal.padded(),
        "packed, cu_seqlens": unequal.packed(),
        "packed, position ids": unequal.packed(by_positions=True),
    }
    for batch, ways in ((equal, {"equal": equal.padded()}), (unequal, ways_of_unequal)):
        given, there = batch.padded()
        exact = outcome(judge, shape.judge, given, there, batch.labels)
        peers = {name: outcome(model, how, given, there, batch.labels, loss_scale) for name, how in shape.peers.items()}
        for way, (own_given, own_there) in ways.items():
            with Calls() as calls:
                own = outcome(model, "kgen", own_given, own_there, batch.labels, loss_scale)
            compared(report, shape, f"{str(dtype)[6:]}, {way}", own, peers, exact, calls.count, batch.labels)


def compared(report, shape, what, own, peers, exact, calls, labels):
    """Reports one row with kgen's results and those of the peers."""
    layers = shape.config.num_hidden_layers
    used = calls == {"fwd": layers, "bwd": layers}
    others = list(peers.values())
    figures = {kind: ratio(errors(own[kind], exact[kind]), [errors(peer[kind], exact[kind]) for peer in others]) for kind in ("logits", "losses")}
    worst, worst_name, over = judged_gradients(own, others, exact)
    held = used and worst <= RULE and all(figure <= RULE for figure in figures.values())
    first = next(iter(peers))
    sides = {"kgen": own, first: others[0], "float64": exact}
    loss = {name: side["losses"].double().sum().item() / int((labels >= 0).sum()) for name, side in sides.items()}
    text = (
        f"error to {first}'s: logits {figures['logits']:.2f}, losses {figures['losses']:.2f}, gradients at most {worst:.2f} ({worst_name}); "
        f"loss {' '.join(f'{value:.5f}' for value in loss.values())}"
    )
    if not used:
        text += f"; kgen was called {calls}, wanted {layers} each"
    report.row(
        "compare", shape.name, what, held, text, ratios=figures, gradient_ratio=worst, gradient_worst=worst_name, gradients_over=over, loss=loss,
        logits_error={name: errors(side["logits"], exact["logits"]) for name, side in {"kgen": own, **peers}.items()},
    )  # fmt: skip


def judged_gradients(own, peers, exact):
    """The largest ratio of errors and its place, and violations of the rule: root mean squares of each parameter with
    at least LEAST_ELEMENTS elements, and the largest error of any element of the model. (The largest of only a few
    hundred elements is half chance.)"""
    unit = torch.finfo(own["logits"].dtype).eps / 2
    ours_all, theirs_all = 0.0, 0.0
    worst, worst_name, over = 0.0, "", []
    for name, reference in exact["gradients"].items():
        ours = errors(own["gradients"][name], reference)
        theirs = [errors(peer["gradients"][name], reference) for peer in peers]
        ours_all, theirs_all = max(ours_all, ours["max"]), max(theirs_all, *(peer["max"] for peer in theirs))
        if reference.numel() < LEAST_ELEMENTS:
            continue
        # A gradient that is exactly zero mathematically, such as a key bias's, is compared with its peers'; any other
        # may have the error of rounding the result.
        theirs.append({"rms": unit * reference.square().mean().sqrt().item()})
        one = ratio(ours, theirs, ("rms",))
        if one > worst:
            worst, worst_name = one, name
        if one > RULE:
            over.append({"name": name, "ratio": one, "kgen": ours, "peers": theirs})
    whole = ratio({"max": ours_all}, [{"max": theirs_all}], ("max",))
    return (whole, "largest of all", over) if whole > worst else (worst, worst_name, over)


def train(report, shape, device, seed, steps, tiny):
    """The loss curves of kgen and its peers, from the same weights on the same batches."""
    initial = model_of(shape, device, torch.float32, seed)
    initial.train()
    ways = {name: (how, 0) for name, how in shape.peers.items()}
    ways |= {f"{name}, rotated": (how, 1) for name, how in shape.peers.items()}
    if shape.peers is EAGER:
        ways["wide"] = ("wide", 0)
    ways["kgen"] = ("kgen", 0)
    config = shape.config
    if not tiny and shape.peers is SDPA and getattr(config, "num_key_value_heads", config.num_attention_heads) == config.num_attention_heads:
        ways["SDPA, efficient"] = ("efficient", 0)  # it does not support shared key heads
    runs = {name: training_curve(initial, shape, how, device, steps, order, seed) for name, (how, order) in ways.items()}
    peers = [curve for name, curve in runs.items() if name != "kgen"]
    noise = max(max(values) - min(values) for values in zip(*peers))
    off = max(abs(own - statistics.mean(values)) for own, values in zip(runs["kgen"], zip(*peers)))
    fell = runs["kgen"][0] - runs["kgen"][-1]
    # On a CPU torch computes with P in fp32, unlike any tensor-core kernel: its noise is not comparable there.
    held = off <= 0.01 if tiny else (off <= RULE * noise and fell > 0.3)  # NaN is neither
    report.row(
        "train", shape.name, f"{steps} steps, {'equal' if shape.causal else 'packed'}", held,
        f"loss {runs['kgen'][0]:.4f} to {runs['kgen'][-1]:.4f}; off the peers' middle by {off:.2e} at most, whose runs differ by {noise:.2e}",
        off=off, noise=noise, curves=runs,
    )  # fmt: skip


def training_curve(initial, shape, implementation, device, steps, order, seed):
    """The loss of each step; `order` rotates the sequences of a batch, which changes only roundings."""
    model = copy.deepcopy(initial)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.9, 0.95), weight_decay=0.01, fused=device != "cpu")
    curve = []
    for step in range(steps):
        batch = training_batch(shape, device, seed + step).rotated(order)
        given, there = batch.packed() if not shape.causal and implementation == "kgen" else batch.padded()
        optimiser.zero_grad(set_to_none=True)
        with use(model, implementation):
            with torch.autocast(torch.device(device).type, torch.bfloat16):
                logits = model(**given).logits[there]
                loss = F.cross_entropy(logits.float(), batch.labels, ignore_index=-100)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        curve.append(loss.item())
    return curve


@functools.cache
def training_batch(shape, device, seed):
    return Batch(shape, [shape.dense[1]] * shape.dense[0] if shape.causal else shape.lengths, device, seed)

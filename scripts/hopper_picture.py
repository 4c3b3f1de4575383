#!/usr/bin/env python3
"""Draws the pipeline of templates/attention/fwd_sm90.cu.tera as an SVG picture, for docs/hopper.md.

    scripts/hopper_picture.py docs/images/hopper-pipeline.svg

The picture is not drawn by hand: the producer thread, two warpgroups and the tensor cores are simulated, tick by tick,
with the waits, arrivals and turns of the template (overlap, turns at the exponentials, two stages each of K and V, two
slots of Q per warpgroup), and the activity of each is drawn. Durations are assumed, not measured; see LENGTHS. Needs
only the standard library.
"""

import sys
from pathlib import Path
from xml.sax.saxutils import escape

# Ticks. A product of 64 x 128 x 128 takes 512 cycles at 4096 FLOP per cycle and multiprocessor (dense bf16), so a tick
# is about 64 cycles. 64 x 128 exponentials at 16 per cycle take the same time, plus the additions and the packing. The
# others are round numbers.
PRODUCT = 8
MAXIMA = 3
EXPONENTIALS = 12
PASS = 9  # part of the exponentials, before the turn is passed
ISSUE = 1
COPY = 5  # one tile of Q, K or V
WRITE = 9  # O and the log-sum-exp
LENGTHS = f"product {PRODUCT}, maxima {MAXIMA}, exponentials {EXPONENTIALS}, copy {COPY}, writing O {WRITE} ticks"

WARPGROUPS = 2
STAGES = {"Q": 4, "K": 2, "V": 2}  # for Q these are slots; alternate slots belong to one warpgroup
READERS = {"Q": 1, "K": WARPGROUPS, "V": WARPGROUPS}  # warpgroups that wait for a tile
PIECES = ["", "'"]  # two work items; the second one's tiles have a prime
TILES = 4
END = 168

SCALE = 7  # pixels per tick
LEFT = 128
TOP = 56
COLOURS = {0: "#2b6cb0", 1: "#c05621"}
LIGHT = {0: "#bee3f8", 1: "#feebc8"}
INK = "#1a202c"
GREY = "#718096"


class Play:
    """A simulation of the block, tick by tick. Agents are generators that yield the condition they wait for: a
    predicate without arguments."""

    def __init__(self):
        self.now = 0
        self.bars = []  # lane, start, end, label, kind, warpgroup
        self.issues = []  # warpgroup, time
        self.turns = []  # from, to, time
        self.turn = 0
        self.landed = {}  # (tensor, piece, tile) -> time from which it is full
        self.released = {}  # (tensor, piece, tile) -> times at which warpgroups finished with it
        self.copies_free = 0
        self.tensor_queue = []
        self.held = []  # tensor, stage, label, fetched, landed, key

    def run(self):
        agents = [self.fetch(), *(self.attend(w) for w in range(WARPGROUPS)), self.tensor_cores()]
        waits = [lambda: True] * len(agents)
        for self.now in range(END * 3):
            moved = True
            while moved:
                moved = False
                for i, agent in enumerate(agents):
                    while waits[i] is not None and waits[i]():
                        waits[i] = next(agent, None)
                        moved = True

    def after(self, ticks):
        then = self.now + ticks
        return lambda: self.now >= then

    def bar(self, lane, start, label, kind, warpgroup=None):
        if self.now > start:
            self.bars.append((lane, start, self.now, label, kind, warpgroup))

    def fetch(self):
        before = {"Q": [], "K": [], "V": []}

        def bring(tensor, piece, tile):
            key = (tensor, piece, tile)
            ring = before[tensor]
            if len(ring) >= STAGES[tensor]:  # the mbarrier of the stage: all readers have finished with its contents
                last = ring[-STAGES[tensor]]
                asked = self.now
                yield lambda: len(self.released.get(last, [])) == READERS[tensor]
                self.bar("fetching", asked, "", "wait")
            label = f"{tensor}{tile}{PIECES[piece]}"
            start = self.now
            self.copies_free = max(self.now, self.copies_free) + COPY
            self.landed[key] = self.copies_free
            self.held.append((tensor, len(ring) % STAGES[tensor], label, start, self.copies_free, key))
            ring.append(key)
            yield self.after(ISSUE)
            self.bar("fetching", start, label, "fetch")

        for piece in range(len(PIECES)):
            yield from bring("K", piece, 0)
            for w in range(WARPGROUPS):
                yield from bring("Q", piece, w)
            for tile in range(TILES):
                if tile + 1 < TILES:
                    yield from bring("K", piece, tile + 1)
                yield from bring("V", piece, tile)

    def attend(self, w):
        lane = f"warpgroup {w}"

        def full(*key):
            return lambda: self.landed.get(key, END * 9) <= self.now

        def release(*key):
            self.released.setdefault(key, []).append(self.now)

        def wait(condition):
            asked = self.now
            yield condition
            self.bar(lane, asked, "", "wait", w)

        following = (w + 1) % WARPGROUPS
        for piece in range(len(PIECES)):
            stroke = PIECES[piece]
            yield from wait(full("Q", piece, w))
            for tile in range(TILES):
                yield from wait(full("K", piece, tile))
                self.issues.append((w, self.now))
                scores = self.product(w, f"QK{tile}{stroke}")
                values = None
                if tile > 0:
                    yield from wait(full("V", piece, tile - 1))
                    values = self.product(w, f"PV{tile - 1}{stroke}")
                yield from wait(lambda job=scores: job["done"])
                release("K", piece, tile)
                if tile + 1 == TILES:
                    release("Q", piece, w)
                start = self.now
                yield self.after(MAXIMA)
                self.bar(lane, start, "", "maxima", w)
                if tile > 0:
                    yield from wait(lambda job=values: job["done"])
                    release("V", piece, tile - 1)
                yield from wait(lambda: self.turn == w)
                start = self.now
                yield self.after(PASS)
                self.turns.append((w, following, self.now))
                self.turn = following
                yield self.after(EXPONENTIALS - PASS)
                self.bar(lane, start, f"exp {tile}{stroke}", "softmax", w)
            yield from wait(full("V", piece, TILES - 1))
            self.issues.append((w, self.now))
            values = self.product(w, f"PV{TILES - 1}{stroke}")
            yield from wait(lambda job=values: job["done"])
            release("V", piece, TILES - 1)
            start = self.now
            yield self.after(WRITE)
            self.bar(lane, start, f"write O{stroke}", "write", w)

    def product(self, w, label):
        job = {"warpgroup": w, "label": label, "done": False}
        self.tensor_queue.append(job)
        return job

    def tensor_cores(self):
        while True:
            yield lambda: self.tensor_queue
            job = self.tensor_queue.pop(0)
            start = self.now
            yield self.after(PRODUCT)
            job["done"] = True
            self.bar("tensor cores", start, job["label"], "product", job["warpgroup"])


def x_of(tick):
    return LEFT + tick * SCALE


def text(x, y, words, size=11, fill=INK, anchor="middle", weight="normal"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'


def box(start, end, y, height, fill, stroke="none", dash=""):
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<rect x="{x_of(start):.1f}" y="{y}" width="{(end - start) * SCALE:.1f}" height="{height}" fill="{fill}" stroke="{stroke}"{dashes}/>'


def draw(play):
    height = {"fetching": 26, "stage": 15, "warpgroup 0": 34, "warpgroup 1": 34, "tensor cores": 40}
    y = TOP
    place = {"fetching": y}
    y += height["fetching"] + 8
    for tensor in "QKV":
        for stage in range(STAGES[tensor]):
            place[tensor, stage] = y
            y += height["stage"] + 2
        y += 4
    y += 10
    for lane in ("warpgroup 0", "warpgroup 1"):
        place[lane] = y
        y += height[lane] + 18
    place["tensor cores"] = y
    bottom = y + height["tensor cores"]
    width = x_of(END) + 12

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + 66}" viewBox="0 0 {width} {bottom + 66}" font-family="sans-serif">',
        "<title>Pipeline of the Hopper forward kernel</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker><clipPath id="view"><rect x="{LEFT}" y="0" width="{END * SCALE}" height="{bottom + 66}"/></clipPath></defs>',
        f'<rect width="{width}" height="{bottom + 66}" fill="white"/>',
        text(12, 22, "Two pieces of work of four key tiles each pass through one block with two multiplying warpgroups", 14, anchor="start", weight="bold"),
        text(12, 40, "time runs to the right; K0 and V0 are the first key tile, counted from the end; Q0 is warpgroup 0's; a stroke marks the second piece of work", 11, GREY, "start"),
    ]
    names = [("fetching", "fetching thread", 26)]
    names += [((tensor, stage), f"{tensor}, {'slot' if tensor == 'Q' else 'stage'} {stage}", 15) for tensor in "QKV" for stage in range(STAGES[tensor])]
    names += [(lane, lane, height[lane]) for lane in ("warpgroup 0", "warpgroup 1", "tensor cores")]
    for key, name, tall in names:
        out.append(f'<rect x="{LEFT}" y="{place[key]}" width="{END * SCALE}" height="{tall}" fill="#f7fafc"/>')
        out.append(text(LEFT - 8, place[key] + tall / 2 + 4, name, 10 if isinstance(key, tuple) else 12, anchor="end"))
    out.append('<g clip-path="url(#view)">')

    for tensor, stage, label, start, landed, key in play.held:
        done = play.released.get(key, [])
        end = max(done) if len(done) == READERS[key[0]] else END * 3
        top = place[tensor, stage]
        out.append(box(start, landed, top, 15, "white", GREY, "2 2"))
        out.append(box(landed, end, top, 15, "#c6f6d5", "#2f855a"))
        out.append(text(x_of((landed + min(end, END)) / 2), top + 11.5, label, 10))

    for lane, start, end, label, kind, w in play.bars:
        top, tall = place[lane], height[lane]
        middle = x_of((start + end) / 2)
        if kind == "wait":
            out.append(f'<line x1="{x_of(start):.1f}" y1="{top + tall / 2}" x2="{x_of(end):.1f}" y2="{top + tall / 2}" stroke="{GREY}" stroke-dasharray="1 4" stroke-width="1.5"/>')
        elif kind == "fetch":
            out.append(box(start, end, top, tall, "#2f855a", "white"))
        elif kind == "product":
            first = label.startswith("QK")
            out.append(box(start, end, top, tall, COLOURS[w] if first else LIGHT[w], "white"))
            out.append(text(middle, top + tall / 2 + 4, label, 11, "white" if first else INK))
        elif kind == "maxima":
            out.append(box(start, end, top + 9, tall - 18, "white", COLOURS[w]))
        elif kind == "softmax":
            out.append(box(start, end, top + 4, tall - 8, LIGHT[w], COLOURS[w]))
            if label:
                out.append(text(middle, top + tall / 2 + 4, label, 11))
        else:
            out.append(box(start, end, top + 4, tall - 8, "#e2e8f0", COLOURS[w]))
            out.append(text(middle, top + tall / 2 + 4, label, 11))

    for w, time in play.issues:
        top = place[f"warpgroup {w}"]
        out.append(box(time, time + ISSUE, top, 34, COLOURS[w]))
    for w, following, time in play.turns:
        down = following > w
        start = place[f"warpgroup {w}"] + (34 if down else 0)
        end = place[f"warpgroup {following}"] + (0 if down else 34)
        out.append(f'<line x1="{x_of(time):.1f}" y1="{start}" x2="{x_of(time):.1f}" y2="{end}" stroke="{INK}" marker-end="url(#tip)"/>')
    out.append("</g>")

    y = bottom + 14
    x = LEFT
    for fill, stroke, dash, words in (
        ("#2f855a", "none", "", "a copy is started"),
        ("white", GREY, "2 2", "copy under way"),
        ("#c6f6d5", "#2f855a", "", "stage full"),
        (COLOURS[0], "none", "", "products handed over; Q K of warpgroup 0"),
        (LIGHT[0], COLOURS[0], "", "exponentials; P V"),
        ("white", COLOURS[0], "", "maxima"),
        (COLOURS[1], "none", "", "the same of warpgroup 1"),
    ):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        out.append(f'<rect x="{x}" y="{y}" width="16" height="12" fill="{fill}" stroke="{stroke}"{dashes}/>')
        out.append(text(x + 22, y + 10, words, 11, anchor="start"))
        x += 46 + 6 * len(words)
    out.append(text(LEFT, y + 30, f"Arrows: the turn at the exponentials is passed. Dotted: waiting. Lengths are chosen, not measured: {LENGTHS}.", 11, GREY, "start"))
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    play = Play()
    play.run()
    Path(sys.argv[1]).write_text(draw(play), encoding="utf-8")


if __name__ == "__main__":
    main()

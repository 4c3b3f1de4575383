#!/usr/bin/env python3
"""Draws a command's terminal output as an SVG picture, for README.md.

    scripts/picture.py docs/images/build-all.svg 112 -- kgen build-all

Runs the command with its standard output on a terminal of the given width (standard error is not captured), so that the
colours are those that a user sees. Needs `rich` from PyPI: python3 -m pip install rich.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

from rich.console import Console
from rich.text import Text


def terminal_output(command, width, expected=0, folder=None):
    """A command's output on a terminal of `width` columns. It must end with the expected exit code."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, width, 0, 0))
    process = subprocess.Popen(command, stdout=slave, env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(width)}, cwd=folder)
    os.close(slave)
    chunks = []
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # the terminal closes with the command
            break
        if not chunk:
            break
        chunks.append(chunk)
    if process.wait() != expected:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}, not {expected}")
    return b"".join(chunks).decode().replace("\r\n", "\n")


def draw(path, command, width, printed):
    """Writes the picture of a terminal with this output."""
    text = f"$ {' '.join([os.path.basename(command[0]), *command[1:]])}\n" + printed
    console = Console(record=True, width=width, file=open(os.devnull, "w"), force_terminal=True)
    console.print(Text.from_ansi(text.rstrip()))
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    svg = console.export_svg(title="kgen")
    # The picture is self-contained: no external fonts, no comment about its origin.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL).replace("Fira Code", "ui-monospace")
    with open(path, "w") as f:
        f.write(svg)


def main():
    path, width, dashes, *command = sys.argv[1:]
    if dashes != "--" or not command:
        raise SystemExit(__doc__)
    draw(path, command, int(width), terminal_output(command, int(width)))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Opens a report of `kgen report` in a headless Chromium, and fails if the page is not what a reader should see.

    scripts/report_browser.py [--screenshots FOLDER] [ROWS.jsonl …]

The rows are those that the project publishes, unless files are named. At widths of a desktop and of a phone, in light
and in dark: no message in the console, no request beside the page, no section without content, no picture without size,
no text that a picture cuts off, no page wider than its window.

KGEN names the kgen binary (default target/release/kgen), CHROMIUM a browser. Playwright is installed by pip into
~/.cache/kgen/browser; a browser that is missing is installed by apt-get if that is possible. Without a browser the
program says so and ends with exit code 77.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kgen/browser"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VIEWS = [("wide", 1280, "light"), ("wide-dark", 1280, "dark"), ("narrow", 390, "light")]
SKIPPED = 77
TALLEST = 1800
# In the page: what is wrong, as texts. A picture shows what lies within its view box; 1 pixel is for rounding.
COMPLAINTS = """() => {
    const wrong = [], root = document.documentElement;
    if (root.scrollWidth > root.clientWidth)
        wrong.push(`the page is ${root.scrollWidth} pixels wide in a window of ${root.clientWidth}`);
    const sections = [...document.querySelectorAll("section")];
    if (!sections.length) wrong.push("the page has no section");
    for (const section of sections) {
        const name = section.querySelector("h2")?.textContent ?? section.id;
        if (!section.querySelector("svg, table, p")) wrong.push(`${name}: the section is empty`);
        for (const svg of section.querySelectorAll("svg")) {
            const title = svg.querySelector("title")?.textContent;
            const box = svg.getBoundingClientRect();
            if (box.width < 100 || box.height < 50) wrong.push(`${title}: ${box.width} by ${box.height} pixels`);
            for (const text of svg.querySelectorAll("text")) {
                const of = text.getBoundingClientRect();
                if (of.left < box.left - 1 || of.right > box.right + 1
                    || of.top < box.top - 1 || of.bottom > box.bottom + 1)
                    wrong.push(`${title}: the text "${text.textContent}" is cut off`);
            }
        }
    }
    return wrong;
}"""


def browser():
    """The path of a Chromium; None if there is none and none can be installed."""
    named = os.environ.get("CHROMIUM")
    found = lambda: named or next(filter(None, map(shutil.which, BROWSERS)), None)
    if not found() and shutil.which("apt-get") and os.geteuid() == 0:
        for words in (["update"], ["install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"]):
            subprocess.run(["apt-get", "-q", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return found()


def with_playwright():
    """Runs this program in an environment that has Playwright, unless this is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        python = CACHE / "bin/python"
        if not python.is_file():
            venv.create(CACHE, with_pip=True)
        if subprocess.run([python, "-c", "import playwright.sync_api"], capture_output=True).returncode:
            done = subprocess.run([python, "-m", "pip", "-q", "install", "playwright"], capture_output=True, text=True)
            if done.returncode:
                print(f"skipped: Playwright cannot be installed: {done.stderr.strip()}")
                sys.exit(SKIPPED)
        os.execv(python, [str(python), *sys.argv])


def page_of(rows, folder):
    """The report's file."""
    kgen = os.environ.get("KGEN", str(ROOT / "target/release/kgen"))
    flags = [word for path in rows for word in ("--rows", str(path))]
    out = folder / "report.html"
    subprocess.run([kgen, "report", *flags, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
    return out


def look(page, url, complaints):
    """Opens the page and adds what is wrong with it."""
    page.on("console", lambda message: complaints.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(f"script: {error}"))
    page.on("request", lambda request: request.url == url or complaints.append(f"request: {request.url}"))
    page.goto(url)
    complaints += page.evaluate(COMPLAINTS)


def screenshots(page, folder, view):
    """The top of the page, and of each section, at most TALLEST pixels high."""
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{view}.png")
    for section in page.query_selector_all("section"):
        box = section.bounding_box()
        clip = {**box, "height": min(box["height"], TALLEST)}
        page.screenshot(path=folder / f"{view}-{section.get_attribute('id')}.png", clip=clip, full_page=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", type=Path, metavar="ROWS.jsonl")
    parser.add_argument("--screenshots", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    with_playwright()
    from playwright.sync_api import sync_playwright

    executable = browser()
    if not executable:
        print("skipped: there is no Chromium, and apt-get cannot install one; CHROMIUM names a browser")
        sys.exit(SKIPPED)
    published = [path for path in (ROOT / "docs/results").glob("*.jsonl") if path.name != "targets.jsonl"]
    wrong = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        report = page_of(args.rows or sorted(published), Path(folder))
        # Root has no sandbox of a browser's kind.
        chromium = started.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for name, width, scheme in VIEWS:
            page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            complaints = []
            look(page, report.as_uri(), complaints)
            wrong += [f"{name}: {complaint}" for complaint in complaints]
            if args.screenshots:
                screenshots(page, args.screenshots, name)
            page.close()
        chromium.close()
    for complaint in wrong:
        print(complaint)
    print(f"{len(VIEWS)} views, {len(wrong)} complaints")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

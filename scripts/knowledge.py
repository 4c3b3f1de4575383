#!/usr/bin/env python3
"""The page docs/knowledge/patterns.md from the records of docs/knowledge/patterns.toml; a check of the knowledge base.

    scripts/knowledge.py            writes the page
    scripts/knowledge.py --check    exits 1, with a line for each fault

Faults are: a record without a key, or with one that the page does not show; a condition on the plan that is none; a name
of a source that no template has; IDs that repeat or do not rise; a kind or
target that is not in variants.toml; a file of code without the name that the record gives; a quote that its page of
results or decisions does not have; a figure that no quote of the record has; an ID on any page that no record has; a
leaf of decisions.md without an ID; a name of code, or a constant in a table, that the linked file does not have; a page
that is not what the records give.
"""

import argparse
import json
import re
import textwrap
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("docs/knowledge")
# What a record of each status says, and what several say.
STATUS = {"helps": ("helps", "help"), "no effect": ("has no effect", "have no effect"), "hurts": ("hurts", "hurt")}
KEYS = ["id", "name", "status", "kinds", "targets", "when", "mechanism", "effect", "page", "quotes", "code"]
# `code_of` is "instead" if the pattern was dropped: the code is then what stands in its place.
# `plan` has conditions on the plan of a kernel that has the pattern, and `source` names in its source: `kgen explain`
# shows a record for the kernels of its kinds and targets that satisfy all of them, and no record that has neither key.
OPTIONAL = ["code_of", "plan", "source"]
WIDTH = 120


def numbers(text):
    """The numbers of a text, without their signs."""
    return set(re.findall(r"\d+(?:[.,]\d+)*", text))


def values(text):
    """The same as values, without commas."""
    return {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text.replace(",", ""))}


def plain(text):
    """A text with one space for all white space between words."""
    return " ".join(text.split())


def read(path):
    return (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else None


def words_of_the_grid():
    """The kinds and the targets of variants.toml."""
    grid = tomllib.loads(read("variants.toml"))
    return {kind for family in grid["family"] for kind in family["kind"]}, set(grid["targets"])


def is_condition(text):
    """True for `tile.m = 192` and the like, whose value is JSON."""
    found = re.fullmatch(r"[a-z0-9_.]+ (=|<=|>=|in) (.+)", text)
    try:
        return found is not None and isinstance(json.loads(found[2]), list) == (found[1] == "in")
    except json.JSONDecodeError:
        return False


def faults_of_record(record, kinds, targets):
    missing = [key for key in KEYS if key not in record]
    unknown = sorted(record.keys() - set(KEYS) - set(OPTIONAL))
    yield from (f"has no `{key}`" for key in missing)
    yield from (f"has an unknown key `{key}`" for key in unknown)
    if missing:
        return
    if record["status"] not in STATUS:
        yield f"has the status `{record['status']}`, which is none of {', '.join(STATUS)}"
    if record.get("code_of", "instead") != "instead":
        yield f"has `code_of = \"{record['code_of']}\"`, which is not \"instead\""
    yield from (f"names the kind `{kind}`, which variants.toml lacks" for kind in record["kinds"] if kind not in kinds)
    yield from (f"names the target `{one}`, which variants.toml lacks" for one in record["targets"] if one not in targets)
    yield from (f"has the condition `{one}`, which is no key, comparison and value" for one in record.get("plan", []) if not is_condition(one))
    templates = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "templates").rglob("*")) if path.is_file())
    names = (name for name in record.get("source", []) if not re.search(rf"\b{re.escape(name)}\b", templates))
    yield from (f"names `{name}`, which no template has" for name in names)
    for place in record["code"]:
        path, _, name = place.partition(": ")
        text = read(path)
        if text is None:
            yield f"names `{path}`, which does not exist"
        elif not name or name not in text:
            yield f"names `{name}`, which `{path}` does not have"
    path = record["page"].partition("#")[0]
    text = read(path)
    if text is None or not path.startswith("docs/") or path.startswith(f"{FOLDER}/"):
        yield f"names the page `{path}`, which is not a page of results or decisions"
        return
    text = plain(text)
    yield from (f"quotes \"{quote}\", which `{path}` does not have" for quote in record["quotes"] if plain(quote) not in text)
    quoted = set().union(*map(numbers, record["quotes"]))
    yield from (f"has the figure {figure}, which none of its quotes has" for figure in sorted(numbers(record["effect"]) - quoted))


def faults_of_records(records):
    kinds, targets = words_of_the_grid()
    before, names = "", set()
    for record in records:
        which = record.get("id", "a record without an ID")
        if not re.fullmatch(r"K-\d{3}", which):
            yield f"{which}: an ID is K- and three digits"
        if which <= before:
            yield f"{which}: stands after {before}"
        before = which
        if record.get("name") in names:
            yield f"{which}: has the name of another record"
        names.add(record.get("name"))
        yield from (f"{which}: {fault}" for fault in faults_of_record(record, kinds, targets))


LINK = re.compile(r"\[`([^`\]]+)`\]\((\.\./[^)#]+)\)")


def faults_of_page(path, known):
    """Faults of a page that people write: IDs without a record, and links of code that do not hold what they name."""
    text = (ROOT / path).read_text(encoding="utf-8")
    for line, content in enumerate(text.splitlines(), 1):
        where = f"{path}:{line}"
        yield from (f"{where}: no record has the ID {one}" for one in re.findall(r"K-\d{3}", content) if one not in known)
        linked = [(name, (ROOT / path).parent / target) for name, target in LINK.findall(content)]
        linked = [(name, file) for name, file in linked if file.is_file() and file.suffix != ".md"]
        for name, file in linked:
            last = re.split(r"::|\.", name.removesuffix("()"))[-1]
            if last not in file.read_text(encoding="utf-8") and not file.match(name):
                yield f"{where}: `{file.name}` does not have `{last}`"
        if content.startswith("| [`") and linked:
            # A row of constants: its numbers are those of the linked files.
            has = set().union(*(values(file.read_text(encoding="utf-8").replace("_", "")) for _, file in linked))
            rest = re.sub(r"`[^`]*`|\]\([^)]*\)", "", content)
            yield from (f"{where}: {one:g} is not a number of the linked code" for one in sorted(values(rest) - has))
        if path.name == "decisions.md" and "→" in content and not re.search(r"K-\d{3}", content):
            yield f"{where}: a leaf without an ID"


def wrapped(text, indent=""):
    """Lines of at most WIDTH columns. Code, the text of links, and signs that would begin a list stay in their line."""
    kept = re.sub(r"`[^`]*`|\[[^\]]*\]", lambda found: found[0].replace(" ", "\0"), plain(text))
    kept = re.sub(r" ([-+*]|\d+[.)]) ", "\0\\1 ", kept)
    lines = textwrap.wrap(kept, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def section(record):
    path, _, anchor = record["page"].partition("#")
    up = Path("..") / Path(path).relative_to("docs")
    link = f"[{Path(path).name}]({up}{'#' + anchor if anchor else ''})"
    code = "; ".join("`{}` in `{}`".format(*reversed(place.split(": ", 1))) for place in record["code"])
    of_code = "Code in its place" if "code_of" in record else "Code"
    kinds = ", ".join(f"`{kind}`" for kind in record["kinds"])
    tied = [
        f"{what} {', '.join(f'`{one}`' for one in record[key])}"
        for key, what in [("plan", "a plan with"), ("source", "a source with")]
        if record.get(key)
    ]
    points = {
        "Where": f"{kinds}; {', '.join(record['targets'])}. {record['when']}",
        **({"Kernels with it": "; ".join(tied) or "all of them"} if {"plan", "source"} & record.keys() else {}),
        "How": record["mechanism"],
        "Measured": f"{record['effect']} ({link})",
        of_code: code,
    }
    lines = "\n".join(wrapped(f"* {key}: {value}", "  ") for key, value in points.items())
    title = wrapped(f"**{record['name']}**: {STATUS[record['status']][0]}.")
    return f"### {record['id']}\n\n{title}\n\n{lines}"


def page(text, records):
    """The page: the comment at the head of the records, a table, and a section for each record."""
    head = [line.removeprefix("#").strip() for line in text.split("\n[[", 1)[0].splitlines() if line.startswith("#")]
    number = {status: sum(record["status"] == status for record in records) for status in STATUS}
    counted = ", ".join(f"{number[status]} {several}" for status, (_, several) in STATUS.items())
    rows = [
        f"| [{one['id']}](#{one['id'].lower()}) | {one['name']} | {one['status']} | {', '.join(one['targets'])} |"
        for one in records
    ]
    paragraphs = [plain(part) for part in "\n".join(head).split("\n\n")]
    return "\n\n".join([
        "# Patterns",
        "<!-- written by scripts/knowledge.py from patterns.toml -->",
        *(wrapped(part) for part in paragraphs),
        f"{len(records)} records: {counted}.",
        "\n".join(["| ID | pattern | status | targets |", "|---|---|---|---|", *rows]),
        "## Records",
        *(section(record) for record in records),
    ]) + "\n"


def faults(text):
    """All faults of the knowledge base with these records, a line each."""
    try:
        records = tomllib.loads(text)["pattern"]
    except (tomllib.TOMLDecodeError, KeyError) as error:
        return [f"patterns.toml: {error}"]
    found = list(faults_of_records(records))
    known = {record.get("id") for record in records}
    for path in sorted((ROOT / FOLDER).glob("*.md")):
        found += faults_of_page(path.relative_to(ROOT), known)
    if not found and read(FOLDER / "patterns.md") != page(text, records):
        found.append("patterns.md is not what patterns.toml gives; run scripts/knowledge.py")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    text = read(FOLDER / "patterns.toml")
    if not args.check:
        (ROOT / FOLDER / "patterns.md").write_text(page(text, tomllib.loads(text)["pattern"]), encoding="utf-8")
        return
    found = faults(text)
    print("\n".join(found) if found else f"{len(tomllib.loads(text)['pattern'])} records")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()

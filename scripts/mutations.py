"""Changes to a line of a template or a device header that a test should detect: the mutations of scripts/mutate.py.

A mutation changes one line and keeps the number of lines, so that reports name the same lines. It is derived only from
the text: the laboratory (scripts/mutant_laboratory.py) determines whether it compiles and has an effect.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

# Operators and their replacements. The code is formatted: a binary operator has spaces around it, a template's bracket
# has none.
OPERATORS = {
    "+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
    "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|", "+=": "-=", "-=": "+=", "*=": "+=", "^=": "|=", "or": "and", "and": "or",
}  # fmt: skip

# Names that are easily confused, as whole words or as parts between underscores and dots.
LOOKALIKES = [
    ("k_place", "v_place"), ("k_full", "v_full"), ("k_empty", "v_empty"), ("q_full", "q_empty"), ("k_full", "k_empty"), ("v_full", "v_empty"),
    ("values_full", "values_empty"), ("K_OFFSET", "V_OFFSET"), ("BLOCK_M", "BLOCK_N"), ("row_stride", "head_stride"), ("batch_stride", "head_stride"),
    ("cu_seqlens_q", "cu_seqlens_k"), ("seqused_q", "seqused_k"), ("seqlen_q", "seqlen_k"), ("num_heads", "num_heads_k"), ("queries", "keys"),
    ("first_row", "rows"), ("max", "min"), ("low", "high"), ("batch", "head"), ("Q_OFFSET", "DOUT_OFFSET"), ("lane_index", "warp_index"),
    ("head_dim", "num_heads"), ("x", "y"), ("z", "w"),
]  # fmt: skip

# An operand: a name, a number or a bracket, with calls, indices and members.
OPERAND = re.compile(r"(?:[\w.:]+(?:<[\w, :]*>)?|(?=\())(?:\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\[[^\[\]]*\]|\.\w+)*")

# Functions whose arguments may be swapped.
COMMUTATIVE = {"min", "max", "maximum"}

HIDDEN = "\0"  # replaces characters of comments, strings and control tags, in which nothing is mutated


@dataclass(frozen=True)
class Mutant:
    """One changed line of one file in the templates' folder."""

    file: str
    line: int  # line number in the current file, from 0
    before: str
    after: str
    kind: str
    occurrence: int  # among equal lines of the file, from 0

    @property
    def id(self):
        """Depends on the change, not on its line number, so that results of several runs can be compared."""
        text = "\n".join([self.file, self.before.strip(), self.after.strip(), str(self.occurrence)])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def closing(code, start):
    """The index of the bracket that closes the one at `start`; None if it is not on the line."""
    depth = 0
    for index in range(start, len(code)):
        if code[index] in "([{":
            depth += 1
        elif code[index] in ")]}":
            depth -= 1
            if depth == 0:
                return index
    return None


def split_at_top(code, start, end, separator):
    """The parts (start, end) of code[start:end] between separators that no bracket encloses."""
    parts, depth, begin, index = [], 0, start, start
    while index < end:
        if code[index] in "([{":
            depth += 1
        elif code[index] in ")]}":
            depth -= 1
        elif depth == 0 and code.startswith(separator, index):
            parts.append((begin, index))
            index += len(separator)
            begin = index
            continue
        index += 1
    return parts + [(begin, end)]


def hide(text, pattern):
    return re.sub(pattern, lambda found: HIDDEN * len(found.group()), text)


def code_of(line):
    """The line with everything hidden except C++: control tags, expressions of the plan, strings and comments are
    hidden."""
    code = hide(line, r"\{%.*?%\}|\{\{.*?\}\}")
    code = hide(code, r'"(?:[^"\\]|\\.)*"')
    code = hide(code, r"(?<=KGEN_KERNEL\()[^()]*")  # a hint to the compiler: registers per thread
    return hide(code, r"//.*$")


def hide_declared_extents(code):
    """Arrays larger than necessary are harmless: extents of declarations are not changed."""
    types = r"\b(?:float|floats4|words4|u?int\d*(?:_t)?|bool|scores|output|weights)\b(?: ?\(?&?\w*\)?)?"
    return re.sub(types + r"((?:\[[^\]]*\])+)", lambda m: m.group()[: m.start(1) - m.start()] + HIDDEN * len(m.group(1)), code)


def skipped_lines(lines):
    """Numbers of lines that no kernel executes: comments, includes and their conditions, static assertions, and refusals of launchers."""
    skipped = set()
    comment = False  # a template's, over several lines
    for number, line in enumerate(lines):
        stripped = line.strip()
        if comment or stripped.startswith("{#"):
            skipped.add(number)
            comment = "#}" not in stripped
        elif re.match(r"\{%-? (if|elif|else)", stripped) and lines[number + 1 : number + 2] and lines[number + 1].startswith("#include"):
            skipped.add(number)
        elif not stripped or re.match(r"//|#|static_assert|template <|using namespace|namespace|\{%-? include|(\{%.*?%\})?//", stripped):
            skipped.add(number)
    refusals = refusal_lines(lines)
    # A value that is computed only for a refusal belongs to it.
    for number, line in enumerate(lines):
        declared = re.match(r"\s*const \w+ (\w+) = .*;$", line)
        if declared and number not in refusals:
            used = {n for n, other in enumerate(lines) if n != number and re.search(rf"\b{declared.group(1)}\b", other)}
            if used and used <= refusals:
                refusals = refusals | {number}
    return skipped | refusals


# A launcher's queries that are needed only for refusals.
CHECKS = re.compile(r"(if \(const int code = |return )check_(shapes|numbers|split_params|split_workspace)\(")


def refusal_lines(lines):
    """Numbers of the lines of statements that end in an error, including their conditions."""
    refusals = {number for number, line in enumerate(lines) if CHECKS.search(line)}
    for number, line in enumerate(lines):
        if not re.search(r"return (fail\(|KGEN_ERROR)", line):
            continue
        last = number
        while not lines[last].rstrip().endswith(";"):
            last += 1
        first = number
        if line.strip().startswith("return") and number > 0:
            first -= 1
            while not re.search(r"\b(if|while|for) \(|^\s*(else|\{%)", lines[first]) and first > 0:
                first -= 1
        refusals |= set(range(first, last + 1))
    return refusals


def operator_changes(code):
    for found in re.finditer(r"(?<= )(\+=|-=|\*=|\^=|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&|^])(?= )", code):
        yield "operator", found.start(), found.end(), OPERATORS[found.group()]
    for found in re.finditer(r"(?<=[(,=?:] )-(?=[\w(])|(?<=[({])-(?=[\w(])|!(?=[\w(])|~(?=\w)", code):
        yield "operator", found.start(), found.end(), ""


def constant_changes(code):
    for found in re.finditer(r"(?<![\w.])(\d+)(u?)(?![\w.])", code):
        value, suffix = int(found.group(1)), found.group(2)
        for other in sorted({value + 1, max(value - 1, 0), value * 2, 0} - {value}):
            yield "constant", found.start(), found.end(), f"{other}{suffix}"
    for found in re.finditer(r"(?<![\w.])\d+\.\d+f\b|(?<![\w.])\d+e-?\d+f\b", code):
        value = float(found.group()[:-1])
        for other in ["1.0f"] if value == 0 else ["0.0f", f"(2 * {found.group()})", f"(1.01f * {found.group()})"]:
            yield "constant", found.start(), found.end(), other
    for found in re.finditer(r"\b(true|false)\b", code):
        yield "constant", found.start(), found.end(), "false" if found.group() == "true" else "true"


def is_statement(code):
    """True if the code is a whole statement that declares nothing: a call, an assignment, a jump."""
    code = code.strip()
    if not code.endswith(";") or "\n" in code or code.count("(") != code.count(")") or code.count("{") != code.count("}"):
        return False
    if re.match(r"(return|using|struct|template|constexpr|const|static|auto|else|case|default)\b", code):
        return False
    if re.match(r"(continue|break);$|(\+\+|--)[\w.\[\]]+;$|[\w.\[\]]+(\+\+|--);$", code):
        return True
    if re.match(r"[\w.:]+(<[^;=]*?>)?\(", code):
        return True
    left = re.match(r"([\w.:]+(?:\[[^\]]*\])*(?:\.\w+)*) (=|\+=|-=|\*=|\^=|\|=) ", code)
    return left is not None


def removals(code):
    start = len(code) - len(code.lstrip(" " + HIDDEN))
    text = code.rstrip(" " + HIDDEN)
    end = len(text)
    if is_statement(text[start:]) and HIDDEN not in text[start:]:
        yield "removed", start, end, ";"
    elif is_statement(text[start:].replace(HIDDEN, "_")):
        yield "removed", start, end, ";"
    for keyword in re.finditer(r"\b(?:if|for|while|if constexpr) \(", code):
        close = closing(code, keyword.end() - 1)
        if close is None:
            continue
        body = text[close + 1 :].lstrip()
        if body.endswith(";") and not body.startswith("{"):
            yield "removed", keyword.start(), end, ";"
            if keyword.group().startswith("if"):
                yield "removed", keyword.start(), end - len(body), ""
    # The body of a function or lambda on one line that returns nothing.
    for body in re.finditer(r"\{ ([^{}]*;) \}", code):
        if "return" not in body.group():
            yield "removed", body.start(1), body.end(1), ""


def calls(code):
    """For each call the pairs (start, end) of its arguments."""
    for found in re.finditer(r"[\w>\]](\()", code):
        word = re.search(r"(\w+)(<[^()]*>)?$", code[: found.start(1)])
        close = closing(code, found.start(1))
        if close is None or (word and word.group(1) in ("if", "for", "while", "switch", "sizeof", "constexpr", *COMMUTATIVE)):
            continue
        parts = split_at_top(code, found.start(1) + 1, close, ", ")
        texts = [code[a:b].strip() for a, b in parts]
        if any(re.match(r"(const )?[\w:<>, ]+[&*]* ?\(?&?\w+\)?(\[[^\]]*\])*$", text) and " " in text for text in texts):
            continue  # parameters of a definition
        yield parts


def swaps(code):
    for parts in calls(code):
        for (a, b), (c, d) in zip(parts, parts[1:]):
            if code[a:b] != code[c:d]:
                yield "swapped", a, d, code[c:d] + code[b:c] + code[a:b]
    for found in re.finditer(r" \? ", code):
        rest = split_at_top(code, found.end(), len(code), " : ")
        if len(rest) < 2:
            continue
        first = rest[0]
        depth, end = 0, rest[1][0]
        while end < len(code) and (depth > 0 or code[end] not in ",;)]}"):
            depth += (code[end] in "([{") - (code[end] in ")]}")
            end += 1
        second = (rest[1][0], end)
        yield "swapped", first[0], end, code[second[0] : second[1]] + " : " + code[first[0] : first[1]]


def conditions(code):
    for found in re.finditer(r"\b(?:if|while|if constexpr) (\()", code):
        close = closing(code, found.start(1))
        if close is not None:
            yield "negated", found.start(1) + 1, close, f"!({code[found.start(1) + 1 : close]})"


def loop_bounds(code):
    for found in re.finditer(r"\bfor (\()", code):
        close = closing(code, found.start(1))
        if close is None:
            continue
        parts = split_at_top(code, found.start(1) + 1, close, "; ")
        if len(parts) != 3:
            continue
        first = re.search(r" = (.+)$", code[slice(*parts[0])])
        if first:
            start = parts[0][0] + first.start(1)
            yield "bound", start, parts[0][1], f"{first.group(1)} + 1"
        last = re.search(r" <=? (.+)$", code[slice(*parts[1])])
        if last:
            start = parts[1][0] + last.start(1)
            for change in (" - 1", " + 1"):
                yield "bound", start, parts[1][1], f"({last.group(1)}){change}"
        step = re.search(r" \+= (.+)$", code[slice(*parts[2])])
        if step:
            start = parts[2][0] + step.start(1)
            yield "bound", start, parts[2][1], f"2 * ({step.group(1)})"


def indices(code):
    for found in re.finditer(r"(?<=[\w\])])\[([^\[\]]+)\]", code):
        index = found.group(1)
        if HIDDEN in index or re.fullmatch(r"[&=\w, ]*&[\w, ]*", index):
            continue
        changes = [f"{index} + 1"] if not index.isdigit() else []
        if index != "0":
            changes.append("0")
        for change in changes:
            yield "index", found.start(1), found.end(1), change


def lookalikes(code):
    if re.fullmatch(r"\s*(const )?[\w:]+(<[^<>]*>)? [\w, ]+;[ \0]*", code) and not re.match(r"\s*return\b", code):
        return  # a declaration, where another name has the same meaning
    for one, other in LOOKALIKES:
        for name, instead in ((one, other), (other, one)):
            for found in re.finditer(rf"(?<![A-Za-z0-9]){name}(?![A-Za-z0-9]|_k\b)", code):
                if len(name) > 1 or code[found.start() - 1 : found.start()] == ".":
                    yield "name", found.start(), found.end(), instead


def dropped_terms(code):
    for found in re.finditer(r" (?:[-+*/%|^&]|<<|>>) ", code):
        after = OPERAND.match(code, found.end())
        if after and after.end() > found.end():
            yield "dropped", found.start(), after.end(), ""
        before = re.search(r"[\w.]+$", code[: found.start()])
        if before and before.group() not in ("return",):
            yield "dropped", before.start(), found.end(), ""
    for operator in (" && ", " || "):
        for found in re.finditer(re.escape(operator), code):
            end, depth = found.end(), 0
            while end < len(code) and (depth > 0 or code[end] not in ",;)}") and not (depth == 0 and code[end : end + 4] in (" && ", " || ", " ? ")):
                depth += (code[end] in "([{") - (code[end] in ")]}")
                end += 1
            yield "dropped", found.start(), end, ""
            start, depth = found.start(), 0
            while start > 0 and (depth > 0 or code[start - 1] not in "({,") and not (depth == 0 and code[start - 4 : start] in (" && ", " || ")):
                start -= 1
                depth += (code[start] in ")]}") - (code[start] in "([{")
            if code[start : found.start()].strip() and not re.match(r"\s*(return|const|if|while)\b", code[start:]):
                yield "dropped", start, found.end(), ""


def tag_changes(line):
    """Conditions and numbers of a template's control tags."""
    for tag in re.finditer(r"\{%-? (if|elif) (.+?) -?%\}", line):
        start, end = tag.span(2)
        yield "tag", start, end, f"not ({tag.group(2)})"
        for found in re.finditer(r"(?<= )(==|!=|<=|>=|<|>|and|or|\+|-|\*)(?= )|(?<![\w.])\d+(?![\w.])", tag.group(2)):
            changes = [OPERATORS[found.group()]] if found.group() in OPERATORS else [str(int(found.group()) + 1)]
            for change in changes:
                yield "tag", start + found.start(), start + found.end(), change


FINDERS = [operator_changes, constant_changes, removals, swaps, conditions, loop_bounds, indices, lookalikes, dropped_terms]


def changes_of_line(line):
    """Every mutation of the line: (kind, changed line), without duplicates."""
    code = hide_declared_extents(code_of(line))
    seen = {line.strip()}
    for kind, start, end, instead in [change for find in FINDERS for change in find(code)] + list(tag_changes(line)):
        # Hidden characters inside a moved part are restored unchanged.
        hidden = iter(c for c, seen_code in zip(line[start:end], code[start:end]) if seen_code == HIDDEN)
        if instead.count(HIDDEN) not in (0, code[start:end].count(HIDDEN)):
            continue
        text = "".join(next(hidden) if c == HIDDEN else c for c in instead)
        changed = line[:start] + text + line[end:]
        if changed.strip() not in seen:
            seen.add(changed.strip())
            yield kind, changed


def mutants_of(file, text):
    """Every mutant of a file, by line: a list of lists, only lines that have any."""
    lines = text.split("\n")
    skipped = skipped_lines(lines)
    seen, found = {}, []
    for number, line in enumerate(lines):
        occurrence = seen.get(line.strip(), 0)
        seen[line.strip()] = occurrence + 1
        if number in skipped:
            continue
        of_line = [Mutant(file, number, line, changed, kind, occurrence) for kind, changed in changes_of_line(line)]
        if of_line:
            found.append(of_line)
    return found


def applied(text, mutant):
    """The file's text with the mutant applied; None if that line no longer exists."""
    lines = text.split("\n")
    places = [n for n, line in enumerate(lines) if line.strip() == mutant.before.strip()]
    if len(places) <= mutant.occurrence:
        return None
    number = places[mutant.occurrence]
    indent = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
    lines[number] = indent + mutant.after.strip()
    return "\n".join(lines)

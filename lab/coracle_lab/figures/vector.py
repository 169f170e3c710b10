"""SVG as text: made smaller, and made fit for the inside of a page.

Most of what matplotlib writes says the same again: groups without a name, digits that nobody sees,
the style of each mark. Letters stay letters, so that a page can be searched and read out.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Iterator

from PIL import Image

FONTS = "DejaVu Sans,Verdana,sans-serif"
"""What letters are drawn with: widths are those of the first, and the second has the same."""
ROOT = f'<svg font-family="{FONTS}" stroke-linejoin="round" stroke-linecap="butt"'
MARKS_AT_LEAST = 4
"""So many marks of one kind are one path with a mark at each of its places."""
USED = re.compile(r'href="#([^"]+)"|url\(#([^)]+)\)')


def smaller(text: str) -> str:
    """Returns the same picture with fewer bytes.

    Hundredths of a point are enough for a place, marks of one group have one style, and a name
    that nothing refers to is left out.
    """
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<!DOCTYPE.*?>", "", text, flags=re.DOTALL)
    text = re.sub(r">\s+<", "><", text)
    text = re.sub(r'"data:image/png;base64,([^"]*)"', _few_tints, text)
    text = re.sub(r' d="([^"]*)"', lambda found: f' d="{_path(found[1])}"', text)
    text = re.sub(r' (x|y|width|height)="(-?[\d.]+)"', _rounded, text)
    text = re.sub(r' transform="rotate\(-?0 [^"]*"', "", text)
    text = re.sub(r' transform="([^"]*)"', lambda found: f' transform="{_short(found[1])}"', text)
    text = re.sub(r' style="([^"]*)"', lambda found: f' style="{_style(found[1])}"', text)
    # All browsers of today know the attribute without its old name space.
    text = text.replace("xlink:href=", "href=")
    text = re.sub(r"(<pattern [^>]*)>(.*?)</pattern>", _tile, text, flags=re.DOTALL)
    text = _once(_one_path(text))
    # In the order of the text: matplotlib's names are hashes, of numbers whose last digits vary.
    names = dict.fromkeys(one or other for one, other in USED.findall(text))
    short = {name: f"i{at}" for at, name in enumerate(names)}
    text = re.sub(
        r' id="([^"]+)"',
        lambda found: f' id="{short[found[1]]}"' if found[1] in short else "",
        text,
    )
    text = re.sub(r'href="#([^"]+)"', lambda found: f'href="#{short[found[1]]}"', text)
    text = re.sub(r"url\(#([^)]+)\)", lambda found: f"url(#{short[found[1]]})", text)
    text = re.sub(r"<g( clip-path=[^>]*)?>((?:<use [^>]*/>)+)</g>", _grouped, text)
    text = _one_group("".join(_without_plain_groups(text)))
    text = _markers_once(MARKS.sub(_marked, text))
    return _with_classes(text)


TINTS = 24
"""So many colours, more or less clear, has a picture of points."""


def _few_tints(found: re.Match[str]) -> str:
    """Returns a picture of very many points with few colours."""
    out = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(found[1]))) as picture:
        few = picture.convert("RGBA").quantize(
            TINTS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
        )
        few.save(out, "PNG", optimize=True)
    return f'"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"'


def _short(text: str) -> str:
    """Returns text whose numbers have two decimals at most."""
    return re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."),
                  text)  # fmt: skip


def _rounded(found: re.Match[str]) -> str:
    return f' {found[1]}="{_short(found[2])}"'


def _path(data: str) -> str:
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", _short(data)).strip()


def _style(text: str) -> str:
    """Returns a style without spaces, and without the font, which the whole picture has."""
    parts = (part.strip() for part in text.split(";"))
    return ";".join(
        re.sub(r":\s+", ":", part) for part in parts if part and not part.startswith("font-family")
    )


TILE = 24
"""Hatching repeats after so many points, whatever its density; matplotlib writes 72."""


def _tile(found: re.Match[str]) -> str:
    """Returns a pattern of lines as a small tile, with the lines that cross it."""
    lines = re.findall(r"M(-?[\d.]+) (-?[\d.]+)L(-?[\d.]+) (-?[\d.]+)", found[2])
    if len(lines) < 2:
        return found[0]
    kept = []
    for line in lines:
        x, y, to_x, to_y = map(float, line)
        steps = (at / 288 for at in range(289))
        points = ((x + step * (to_x - x), y + step * (to_y - y)) for step in steps)
        if any(-1 <= one <= TILE + 1 and -1 <= other <= TILE + 1 for one, other in points):
            kept.append("M{} {}L{} {}".format(*line))
    head = re.sub(r' (width|height)="72"', rf' \1="{TILE}"', found[1])
    body = re.sub(r' d="M[^"L]*L[^"Lz]*(M[^"]*)"', f' d="{"".join(kept)}"', found[2], count=1)
    return f"{head}>{body}</pattern>"


LINES = re.compile(r'<path d="([^"]*)"( clip-path="[^"]*" style="fill:none;stroke:[^"]*")/>')


def _one_path(text: str) -> str:
    """Returns the text with lines of one style in one pair of axes as one path, where the first
    of them was."""
    lines: dict[str, list[str]] = {}
    for data, rest in LINES.findall(text):
        lines.setdefault(rest, []).append(data)

    def first(found: re.Match[str]) -> str:
        own = lines.pop(found[2], [])
        return f'<path d="{"".join(own)}"{found[2]}/>' if own else ""

    return LINES.sub(first, text)


def _once(text: str) -> str:
    """Returns the text with each shape of a mark once, whatever name it had."""
    first: dict[str, str] = {}
    same: dict[str, str] = {}

    def kept(found: re.Match[str]) -> str:
        same[found[1]] = first.setdefault(found[2], found[1])
        return found[0] if same[found[1]] == found[1] else ""

    text = re.sub(r'<path id="([^"]+)"([^>]*)/>', kept, text).replace("<defs></defs>", "")
    return re.sub(r'href="#([^"]+)"', lambda found: f'href="#{same.get(found[1], found[1])}"', text)


MARKS = re.compile(r'<g( clip-path="[^"]*")? style="([^"]*)">((?:<use [^>]*/>)+)</g>')


def _one_group(text: str) -> str:
    """Returns the text with equal marks of one style in one pair of axes as one group, where the
    last of them was."""
    parts = MARKS.split(text)
    marks: dict[tuple[str, ...], list[str]] = {}
    last: dict[tuple[str, ...], int] = {}
    for at in range(1, len(parts), 4):
        key = (parts[at] or "", *parts[at + 1 : at + 2], *re.findall(r"#[^\"]+", parts[at + 2])[:1])
        marks.setdefault(key, []).append(parts[at + 2])
        last[key] = at
    made = [parts[0]]
    by_place = {at: key for key, at in last.items()}
    for at in range(1, len(parts), 4):
        key = by_place.get(at, ())
        if key:
            made.append(f'<g{key[0]} style="{key[1]}">{"".join(marks[key])}</g>')
        made.append(parts[at + 3])
    return "".join(made)


def _grouped(found: re.Match[str]) -> str:
    """Returns a group whose marks have its style, if they have the same."""
    styles = set(re.findall(r' style="([^"]*)"/>', found[2]))
    if len(styles) != 1 or found[2].count("<use") != found[2].count(" style="):
        return found[0]
    (one,) = styles
    marks = found[2].replace(f' style="{one}"', "")
    # Marks are larger than a tenth of a point.
    marks = re.sub(r'\.(\d)\d+"', r'.\1"', marks)
    return f'<g{found[1] or ""} style="{one}">{marks}</g>'


def _marked(found: re.Match[str]) -> str:
    """Returns a group of many equal marks as a path that has the mark at each place."""
    marks = re.findall(r'href="#([^"]+)" x="([^"]*)" y="([^"]*)"/>', found[3])
    if len(marks) < MARKS_AT_LEAST or len({name for name, _, _ in marks}) > 1:
        return found[0]
    shape = marks[0][0]
    name = f"{shape}-{hashlib.sha256(found[2].encode()).hexdigest()[:4]}"
    places = " ".join(f"{x} {y}" for _, x, y in marks)
    return (
        f'<marker id="{name}" overflow="visible" markerUnits="userSpaceOnUse">'
        f'<use href="#{shape}" style="{found[2]}"/></marker>'
        f'<path d="M{places}"{found[1] or ""} style="fill:none;marker:url(#{name})"/>'
    )


def _markers_once(text: str) -> str:
    """Returns the text with each mark of paths where it is needed first."""
    seen: set[str] = set()

    def first(found: re.Match[str]) -> str:
        is_new = found[0] not in seen
        seen.add(found[0])
        return found[0] if is_new else ""

    return re.sub(r"<marker .*?</marker>", first, text)


def _with_classes(text: str) -> str:
    """Returns the text with each style once, under a name that follows from it.

    So the same name means the same style, whatever other figures a page has.
    """
    styles: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        if "url(" in found[1]:
            return found[0]
        name = "k" + hashlib.sha256(found[1].encode()).hexdigest()[:7]
        styles[name] = found[1]
        return f' class="{name}"'

    text = re.sub(r"<defs><style.*?</style></defs>", "", text, flags=re.DOTALL)
    text = re.sub(r' style="([^"]*)"', named, text)
    rules = "".join(f".{name}{{{style}}}" for name, style in sorted(styles.items()))
    head, body = re.split(r"(?<=>)(?=<)", text[text.index("<svg ") :], maxsplit=1)
    xml = text[: text.index("<svg ")]
    return f"{xml}{head.replace('<svg', ROOT, 1)}<style>{rules}</style>{body}"


def styles_once(page: str) -> str:
    """Returns a page whose figures have each style once, in the first that needs it."""
    seen: set[str] = set()

    def first(found: re.Match[str]) -> str:
        rules = [one for one in re.findall(r"\.k[0-9a-f]{7}\{[^}]*\}", found[1]) if one not in seen]
        seen.update(rules)
        return f"<style>{''.join(rules)}</style>" if rules else ""

    return re.sub(r"<style>((?:\.k[0-9a-f]{7}\{[^}]*\})+)</style>", first, page)


def _without_plain_groups(text: str) -> Iterator[str]:
    """Yields the text without groups that say nothing."""
    kept: list[bool] = []
    for part in re.split(r"(</?g\b[^>]*>)", text):
        if part == "</g>":
            if kept.pop():
                yield part
        elif re.match(r"<g[ >]", part) and not part.endswith("/>"):
            kept.append(part.replace(" ", "") != "<g>")
            if kept[-1]:
                yield part
        elif part != "<g/>":
            yield part


def inline(text: str, name: str, what: str) -> str:
    """Returns an SVG for the inside of an HTML page.

    Its ids get a prefix, because a page has one set of ids. `what` is read to those who do not see
    it. `name` and `what` have to be escaped already.
    """
    body = text[text.index("<svg") :].rstrip()
    body = re.sub(' id="', f' id="{name}-', body)
    body = re.sub('href="#', f'href="#{name}-', body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    size = re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', body)
    assert size is not None, "matplotlib writes the size of every figure"
    head = (
        f'{ROOT} role="img" aria-label="{what}" style="max-width:{float(size[1]) * 1.7:.0f}px"'
        f' viewBox="0 0 {size[1]} {size[2]}" xmlns="http://www.w3.org/2000/svg"'
    )
    return head + body[body.index(">") :]

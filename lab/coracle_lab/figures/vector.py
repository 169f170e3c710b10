"""SVG as text: made smaller, and made fit for the inside of a page.

Most of a figure is its points, each an element with a reference and a place, so what they repeat
is said once, and names are short.
"""

from __future__ import annotations

import re

LETTER = "DejaVuSans-"
"""How names of letters' outlines begin: they are the same in all figures."""
USED = re.compile(r'href="#([^"]+)"|url\(#([^)]+)\)')


def smaller(text: str) -> str:
    """Returns the same picture with fewer bytes.

    Hundredths of a point are enough for a place, marks of one group have one style, and a name
    that nothing refers to is left out.
    """
    text = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"\n\s+", "\n", text)
    text = re.sub(r'(\b[xy]=")(-?\d+\.\d\d)\d+"', r'\1\2"', text)
    text = re.sub(
        r"translate\([^)]*\)", lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), text
    )
    # All browsers of today know the attribute without its old name space.
    text = text.replace("xlink:href=", "href=")
    text = re.sub(r"<g( clip-path=[^>]*)>((?:\s*<use [^>]*/>)+\s*)</g>", _grouped, text)
    names = {one or other for one, other in USED.findall(text)}
    short = {
        name: name if name.startswith(LETTER) else f"i{at}" for at, name in enumerate(sorted(names))
    }
    text = re.sub(
        r' id="([^"]+)"',
        lambda found: f' id="{short[found[1]]}"' if found[1] in short else "",
        text,
    )
    text = re.sub(r'href="#([^"]+)"', lambda found: f'href="#{short[found[1]]}"', text)
    return re.sub(r"url\(#([^)]+)\)", lambda found: f"url(#{short[found[1]]})", text)


def _grouped(found: re.Match[str]) -> str:
    """Returns a group whose marks have its style, if they have the same."""
    styles = set(re.findall(r' style="([^"]*)"/>', found[2]))
    if len(styles) != 1 or found[2].count("<use") != found[2].count(" style="):
        return found[0]
    (one,) = styles
    return f'<g{found[1]} style="{one}">' + found[2].replace(f' style="{one}"', "") + "</g>"


def inline(text: str, name: str, what: str) -> str:
    """Returns an SVG for the inside of an HTML page.

    Its ids get a prefix, because a page has one set of ids; those of letters do not, and
    `letters_once` is for the page. `what` is read to those who do not see it. `name` and `what`
    have to be escaped already.
    """
    body = text[text.index("<svg") :].rstrip()
    body = re.sub(f' id="(?!{LETTER})', f' id="{name}-', body)
    body = re.sub(f'href="#(?!{LETTER})', f'href="#{name}-', body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    size = re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', body)
    assert size is not None, "matplotlib writes the size of every figure"
    head = (
        f'<svg role="img" aria-label="{what}" style="max-width:{float(size[1]) * 1.7:.0f}px"'
        f' viewBox="0 0 {size[1]} {size[2]}" xmlns="http://www.w3.org/2000/svg"'
    )
    return head + body[body.index(">") :]


def letters_once(page: str) -> str:
    """Returns a page whose figures have each letter's outline once, in the first that needs it."""
    seen: set[str] = set()

    def first(found: re.Match[str]) -> str:
        if found[1] in seen:
            return ""
        seen.add(found[1])
        return found[0]

    page = re.sub(f'<path id="({LETTER}[^"]*)"[^>]*/>\\s*', first, page)
    return re.sub(r"<defs>\s*</defs>\s*", "", page)

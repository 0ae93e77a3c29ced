"""What experimenters hang into the page with html.css, html.js and html.element_*: which files of ours that needs.

Scripts and styles written for the first Salmon count on jQuery 3.2, Bootstrap 4.0 and a few global names. They are
loaded from here, and only for experiments that use them; the page itself needs none of them.
"""

from __future__ import annotations

import re

from frontend.html import clean
from salmon.spec import Spec

_PLACES = ("top", "middle", "bottom", "standalone")
_JQUERY = re.compile(r"\$\s*[.(]|\bjQuery\b|data-(?:toggle|dismiss|target)\b")
_BOOTSTRAP = re.compile(
    r"""class\s*=\s*["'][^"']*\b(?:btn|row|col|container|card|alert|modal|badge|table|form|navbar|list-group|jumbotron"""
    r"""|[mp][trblxy]?-[0-5]|text-(?:center|left|right|muted)|bg-[a-z]+|d-(?:flex|none|block))\b"""
    r"""|\.(?:modal|tooltip|popover|collapse|carousel|tab|dropdown|alert|button)\(|data-(?:toggle|dismiss)\b"""
)


def elements_of(spec: Spec) -> dict[str, str]:
    """The experimenter's pieces of HTML by their place, cleaned unless the spec is trusted."""
    return {place: clean(getattr(spec.html, f"element_{place}"), trusted=spec.page.trusted) for place in _PLACES}


def hooks_of(spec: Spec) -> frozenset[str]:
    """Which of `style`, `script`, `jquery`, `bootstrap` the page has to load."""
    elements = " ".join(elements_of(spec).values())
    code = f"{spec.html.js} {elements}"
    bootstrap = bool(_BOOTSTRAP.search(code))
    wanted = {
        "style": bool(spec.html.css.strip()),
        "script": bool(spec.html.js.strip()) or (spec.page.trusted and "<script" in elements),
        "jquery": bootstrap or bool(_JQUERY.search(code)),
        "bootstrap": bootstrap,
    }
    return frozenset(name for name, needed in wanted.items() if needed)

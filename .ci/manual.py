"""Hooks of mkdocs: make one site of docs/ and of the pages that lie beside it, with links that fit.

In the repository, links are relative to the file that they stand in, so that they work there too.
"""  # noqa: INP001

import re
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parent.parent
#: Pages outside docs/ -> their names in the site.
BESIDE = {
    "README.md": "start.md",
    "examples/README.md": "examples.md",
    "docker/README.md": "containers.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
}
_ITEM = re.compile(r"(?:[*+-]|\d+\.) ")
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s]+)(?=\))")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add the pages beside docs/, and the files that any page links to."""
    for path, name in BESIDE.items():
        files.append(_file(config, name, path))
    for page in list(files.documentation_pages()):
        where = _place_of(page)
        for link in _LINK.findall(page.content_string):
            path = _resolved(where, link)
            name = _name_of(path)
            if name.startswith("files/") and (REPOSITORY / path).is_file() and files.get_file_from_path(name) is None:
                files.append(_file(config, name, path))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Return a page whose links lead to where things are in the site."""
    where = _place_of(page.file)
    depth = page.file.src_uri.count("/")

    def rewrite(match: re.Match[str]) -> str:
        path, hash_sign, anchor = match[1].partition("#")
        return "../" * depth + _name_of(_resolved(where, path)) + hash_sign + anchor

    return _indented(_LINK.sub(rewrite, markdown))


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Return a page that loads nothing from another server: the theme's help for searching on a disk would be."""
    return _without_shim(output, "../" * page.url.count("/"))


def on_post_template(output_content: str, **_: Any) -> str:
    """Return a page that is no page of the manual in the same way: that of missing addresses."""
    return _without_shim(output_content, "/")


def _without_shim(output: str, root: str) -> str:
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{root}site/worker.js")


def _indented(markdown: str) -> str:
    """Return a page in which what belongs to an item of a list is indented by four spaces, as mkdocs wants it.

    The repository's own view is content with two or three.
    """
    lines: list[str] = []
    in_list = in_code = False
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            in_code = not in_code
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent == 0 and not in_code:
            in_list = bool(_ITEM.match(line))
        missing = -indent % 4
        lines.append(" " * missing + line if in_list and indent > 1 and missing < 3 else line)
    return "\n".join(lines) + "\n"


def _file(config: MkDocsConfig, name: str, path: str) -> File:
    file = File.generated(config, name, abs_src_path=str(REPOSITORY / path))
    file.inclusion = InclusionLevel.INCLUDED
    return file


def _place_of(file: File) -> PurePosixPath:
    """Return the folder of a page in the repository."""
    return PurePosixPath(Path(file.abs_src_path or "").resolve().relative_to(REPOSITORY).parent.as_posix())


def _resolved(where: PurePosixPath, link: str) -> str:
    """Return the path in the repository that a link leads to."""
    parts: list[str] = []
    for part in (where / unquote(link.partition("#")[0])).parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _name_of(path: str) -> str:
    """Return where a file of the repository is in the site."""
    if path in BESIDE:
        return BESIDE[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}"

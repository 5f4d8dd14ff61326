"""Build steps of the site: pages from the root of the repository, code of examples, formulas as MathML."""

import html
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
PAGES = {"RESULTS.md": "results.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}


def on_files(files, config):
    """Add pages and figures that live outside of docs/."""
    for source, target in PAGES.items():
        if (ROOT / source).exists():
            text = (ROOT / source).read_text().replace("](docs/", "](")  # links from the root of the repository
            files.append(File.generated(config, target, content=text))
    for figure in sorted((ROOT / "results" / "figures").glob("*.svg")):
        files.append(File.generated(config, f"results/figures/{figure.name}", content=figure.read_bytes()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Replace a line that links to an example by its code, folded."""

    def code(found):
        lines = (ROOT / found[1]).read_text().splitlines()
        return "\n".join([f'??? example "{found[1]}"', "", "    ```python", *(f"    {x}" for x in lines), "    ```"])

    return re.sub(r"^\[examples/\w+\.py\]\(\.\./(examples/\w+\.py)\)$", code, markdown, flags=re.M)


def on_page_content(content, page, config, files):
    """Replace formulas by MathML, which browsers show without a script."""
    inline = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.S)
    display = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.S)
    content = inline.sub(lambda found: convert(html.unescape(found[1])), content)
    return display.sub(lambda found: convert(html.unescape(found[1]), display="block"), content)


def on_post_page(output, page, config):
    """Name the search dialog and its switch for screen readers."""
    for mark in ('data-md-component="search" role="dialog"', 'type="checkbox" id="__search"'):
        output = output.replace(mark, f'{mark} aria-label="Search"')
    return output

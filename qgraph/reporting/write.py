"""The page in the output directory that it is about."""

from __future__ import annotations

from pathlib import Path

from qgraph.files import write_whole
from qgraph.reporting.page import render
from qgraph.reporting.reading import read_facts
from qgraph.stored import inference_folder
from qgraph.stored.write import REPORT


def report(folder: str | Path) -> Path:
    """Write report.html: layers, histograms, scale groups, and what to do next.

    Args:
        folder: An output directory, or a training directory with `inference/` inside. The page goes
            into it, and needs no network.

    Returns:
        The path of the page.

    Raises:
        LoadError: The folder is not what qgraph wrote.
        UsageError: jinja2 is not installed.
        OutputError: The page cannot be written.

    Examples:
        >>> print(qgraph.report("out"))
        out/report.html
    """
    folder = inference_folder(folder)
    page = folder / REPORT
    write_whole(page, render(read_facts(folder)).encode())
    return page

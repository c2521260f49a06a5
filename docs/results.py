"""Write docs/results.md and its pictures from the folders of a full run (`make results`).

`python docs/results.py DIR`: DIR has a folder for each study, as `desmr study NAME --out DIR/NAME` leaves it.
"""

import sys
from pathlib import Path

from desmr_node.cli.plots.study import draw
from desmr_node.studies import STUDIES
from desmr_node.studies.methods import MEANINGS
from desmr_node.studies.report import glossary, markdown, markdown_table, verdict
from desmr_node.studies.results import Results, ResultsFile
from desmr_node.studies.running import RESULTS
from desmr_node.studies.study import Study

PAGE = Path(__file__).with_name("results.md")
IMAGES = Path(__file__).with_name("images") / "studies"
HEAD = """\
# Results

The paper's tables and figure, run again, and what the project adds to them. Written by `make results` from a
full run of `desmr study`; `desmr study NAME --repetitions R` repeats any of it. What the paper leaves open,
and what was assumed, is in [paper-notes.md](paper-notes.md); figures of speed, scale and the network are in
[benchmarks.md](benchmarks.md).
"""


def found(study: Study, folder: Path) -> Results:
    """All that the folder holds of the study; incomplete cells are an error."""
    results = Results()
    done = ResultsFile(folder / RESULTS, study.factors, study.columns).read()
    for key, rows in done.items():
        results.add(key, rows)
    expected = len(study.cells) * len(results.seeds) or 100 * len(study.cells)
    if len(done) != expected:
        raise SystemExit(
            f"{folder}: {len(done)} of {expected} repetitions; run `desmr study {study.name}` first"
        )
    return results


def main(folder: Path) -> None:
    """The page and its pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    summary = ["| study | repetitions | bounds |", "|---|---|---|"]
    sections = []
    for study in STUDIES.values():
        results = found(study, folder / study.name)
        pictures = []
        for picture in study.pictures(results):
            png, svg = draw(picture, IMAGES)
            png.unlink()
            pictures.append(f"images/studies/{svg.name}")
        anchor = "".join(c for c in study.title.lower() if c.isalnum() or c in " -").replace(" ", "-")
        verdicts = verdict(study.checks(results))
        summary.append(f"| [{study.name}](#{anchor}) | {len(results.seeds)} | {verdicts} |")
        sections.append(markdown(study, results, level=2, pictures=pictures))
    methods = markdown_table(glossary(MEANINGS))
    PAGE.write_text("\n".join([HEAD, methods, "", *summary, "", *sections]), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))

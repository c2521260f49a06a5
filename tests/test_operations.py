"""docs/operations.md says what the program says: its sentences, its metrics, its measurements."""

import re
from pathlib import Path

import pytest

from desmr_node import cli

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
ALERTS = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8")


def section(title):
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def cells(title):
    """The rows of a section's last table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    last = max(k for k, line in enumerate(lines) if set(line) <= set("|-"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[last + 1 :]]


def documented():
    return set(re.findall(r"`(desmr_\w+)", " ".join(row[0] for row in cells("Metrics"))))


@pytest.fixture(scope="module")
def source():
    """All of the package, sentences that go over several lines joined."""
    files = sorted((ROOT / "desmr_node").rglob("*.py"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return re.sub(r'"\s*\n\s*f?"', "", text)


SYMPTOMS = [said for row in cells("What to do when") for said in re.findall(r"`([^`]+)`", row[0])]


def test_there_are_symptoms():
    assert len(SYMPTOMS) > 20


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_every_symptom_is_worded_as_the_program_words_it(symptom, source):
    assert symptom in source


@pytest.mark.parametrize(
    "line", ["fit failed", "is up", "is gone", "members: ", "the certificates were replaced"]
)
def test_lines_of_the_log(line, source):
    assert line.strip() in PAGE
    assert line in source


def test_alerts_use_metrics_that_exist():
    used = set(re.findall(r"desmr_\w+", ALERTS))
    assert len(used) > 5
    assert used <= documented()


def test_the_formulae_describe_the_measurements():
    rows = [[float(cell) for cell in row] for row in cells("Sizing")]
    assert len(rows) >= 9
    for n, p, m, _, _, peak, _, _, edge, *_ in rows:
        said = 120 + (8 * n * (1.5 * p + 20) + 8 * p**2 * (25 + 2 * m)) / 1e6
        assert said == pytest.approx(peak, rel=0.1)
        assert edge <= m * (60e3 + 600 * p + 5 * p**2) / 1e6
    text = " ".join(section("Sizing").split())
    assert "120 MB + 8n(1.5p + 20) + 8p²(25 + 2m) bytes" in text
    assert "m (60 kB + 600p + 5p² bytes)" in text


def test_commands_exist():
    """Every `desmr` command on the page is one that the program knows."""
    written = " ".join(re.findall(r"`[^`]+`|^ *desmr .*", PAGE, re.MULTILINE))
    found = set(re.findall(r"(?<!su )\bdesmr ((?:network )?[a-z]+)", written))  # a user of logrotate's
    assert {"network add", "network sign", "check", "health", "status"} <= found
    for command in found:
        with pytest.raises(SystemExit) as stopped:
            cli.desmr([*command.split(), "--help"])
        assert stopped.value.code == 0

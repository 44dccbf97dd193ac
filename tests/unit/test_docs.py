"""What the documents say exists: commands and their options, settings, metrics, states, links."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from domain import lifecycle
from domain.lifecycle import ParkReason
from domain.verification import Reason, find_scheme, schemes
from ops.cli.app import app
from ops.settings import PREFIX, Settings, describe

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    "README.md",
    "docs/lifecycle.md",
    "docs/operations.md",
    "docs/glossary.md",
    "docs/schemes.md",
    "docs/guarantees.md",
)
LIFECYCLE = (ROOT / "docs/lifecycle.md").read_text()
SCHEMES = (ROOT / "docs/schemes.md").read_text()
PRINTED = {"ready"}  # `hookyard ready` is what `up` says
OTHERS = {"--format", "--file", "--no-owner", "--exit-on-error", "--single-transaction", "--dbname"}  # PostgreSQL's
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")


def written(document: str) -> tuple[list[str], list[str]]:
    """The lines of a document's shell blocks, and what its prose puts in code."""
    text = (ROOT / document).read_text()
    lines = [line for kind, block in BLOCK.findall(text) if kind == "sh" for line in block.splitlines()]
    return lines, [" ".join(span.split()) for span in SPAN.findall(BLOCK.sub("", text))]


def commands(document: str) -> Iterator[str]:
    """Every command of ours that a document prints, without what it is piped into."""
    lines, spans = written(document)
    for text in [*lines, *spans]:
        found = re.search(r"(?:^|\$\()hookyard ((?:'[^']*'|[^|)#'])+)", text)
        if found and found[1].split()[0] not in PRINTED:
            yield found[1].strip()


def why_not(command: str) -> str | None:
    """What is wrong with a command; nothing is executed."""
    place = typer.main.get_command(app)
    words = shlex.split(command)
    while hasattr(place, "commands"):
        if not words:
            return None  # a group, named as such
        word = words.pop(0)
        if word not in place.commands:
            return f"no command {word!r}"
        place = place.commands[word]
    options = {name: option for option in place.params for name in option.opts if name.startswith("-")}
    arguments = 0
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            arguments += 1
        elif word != "--help" and word not in options:
            return f"no option {word}"
        elif word != "--help" and not getattr(options[word], "is_flag", False) and words:
            words.pop(0)
    known = [option for option in place.params if option.param_type_name == "argument"]
    unbounded = any(argument.nargs == -1 for argument in known)
    return None if unbounded or arguments <= len(known) else f"takes {len(known)} arguments, not {arguments}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_in_the_documents_exists_as_it_is_written(document: str) -> None:
    assert [f"{command}: {wrong}" for command in commands(document) if (wrong := why_not(command))] == []


def test_a_command_that_does_not_exist_would_be_noticed() -> None:
    assert why_not("partner ad acme") == "no command 'ad'"
    assert why_not("partner add acme --loud") == "no option --loud"
    assert why_not("partner add acme orders") == "takes 1 arguments, not 2"
    assert len(list(commands("README.md"))) > 20


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_option_in_the_documents_is_one_of_ours(document: str) -> None:
    lines, spans = written(document)
    named = {option for text in [*lines, *spans] for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)}
    assert named - OTHERS - _options(typer.main.get_command(app)) == set()


def test_the_lifecycle_names_every_state() -> None:
    assert {state for state in lifecycle.EVENT_STATES if f"\n| `{state}` |" not in LIFECYCLE} == set()


def test_the_lifecycle_names_every_park_reason() -> None:
    assert {reason.value for reason in ParkReason if f"\n| `{reason.value}` |" not in LIFECYCLE} == set()


def test_the_lifecycle_names_every_fact_and_no_other() -> None:
    facts = {fact.__name__ for fact in lifecycle.Fact.__args__}
    assert set(re.findall(r"^\| `([A-Z]\w+)` \|", LIFECYCLE, re.MULTILINE)) == facts


def test_the_readme_names_every_setting_and_no_other() -> None:
    rows = re.findall(rf"^\| `({PREFIX}\w+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert rows == sorted(set(rows), key=rows.index)
    assert set(rows) == set(describe(Settings.model_construct()))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_setting_in_the_documents_exists(document: str) -> None:
    named = set(re.findall(rf"\b{PREFIX}[A-Z_]+", (ROOT / document).read_text()))
    assert named <= set(describe(Settings.model_construct()))


def test_the_schemes_are_told_as_they_are() -> None:
    told = [line for line in SCHEMES.splitlines() if line.startswith("| `") and line.count("|") == 7]
    assert told == [
        f"| `{s.name}` | {s.summary} | {s.takes if s.needs_secret else '–'} | `{s.dedupe}` | `{s.type}` "
        f"| {s.on_backlog_full} |"
        for s in schemes().values()
    ]


def test_every_reason_for_a_401_and_every_option_of_hmac_is_told() -> None:
    assert {reason.value for reason in Reason if f"`{reason.value}`" not in SCHEMES} == set()
    rows = re.findall(r"^\| `--verify-(\w+)` \| (.+?) \|", SCHEMES, re.MULTILINE)
    defaults = {name: default.strip("`") for name, default in rows}
    assert {name: "" if text == "nothing" else text for name, text in defaults.items()} == {
        name: "none: it must be given" if text is None else text for name, text in find_scheme("hmac").options.items()
    }


def test_the_guarantees_name_tests_that_exist_and_one_for_every_fault() -> None:
    text = (ROOT / "docs/guarantees.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    gone = [f"{file}::{test}" for file, test in named if not re.search(rf"def {test or 'test_'}", _source(file))]
    faults = re.findall(r"^\| ([^|]+) \|(?:[^|]*\|){2} ([^|]*) \|$", text, re.MULTILINE)
    unproved = [fault for fault, proof in faults if "`tests/" not in proof and fault not in ("fault", "---")]
    assert (gone, unproved) == ([], [])
    assert len(faults) > 15


def test_operations_names_every_metric() -> None:
    text = "".join(path.read_text() for role in ("ingest", "workers", "ops") for path in (ROOT / role).glob("*.py"))
    counted = re.findall(r'Counter\(\s*"(hookyard_\w+)"', text)
    named = set(re.findall(r'"(hookyard_\w+)"', text)) - set(counted) | {f"{name}_total" for name in counted}
    told = set(re.findall(r"`(hookyard_\w+)", (ROOT / "docs/operations.md").read_text()))
    assert named - told == set()
    assert told - named == set()


@pytest.mark.parametrize("document", [*DOCUMENTS, "CHANGELOG.md"])
def test_links_between_the_documents_lead_somewhere(document: str) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / document).read_text())
    gone = [link for link in links if "://" not in link and not (ROOT / document).parent.joinpath(link).exists()]
    assert gone == []


def _source(file: str) -> str:
    path = ROOT / file
    return path.read_text() if path.exists() else ""


def _options(place: object) -> set[str]:
    """The long options of a command and of everything below it."""
    own = {name for option in getattr(place, "params", ()) for name in option.opts if name.startswith("--")}
    return own.union({"--help"}, *(_options(below) for below in getattr(place, "commands", {}).values()))

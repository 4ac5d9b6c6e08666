"""What holds for every command."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from idem_middleware.cli.root import COMMANDS, root
from tests.cli.conftest import Run


def every_command(
    group: click.Group = root, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from every_command(command, (*path, name))


ALL = dict(every_command())


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_a_command_has_an_example_that_can_be_typed(path: tuple[str, ...]) -> None:
    """Its help ends with one, and the parser takes it."""
    command = ALL[path]
    lines = [line.strip() for line in (command.epilog or "").splitlines() if "idem-middleware " in line]
    assert lines, "no example"
    for line in lines:
        words = shlex.split(line.partition(" > ")[0])[1:]
        found: click.Command = root
        while isinstance(found, click.Group) and words:
            found = found.commands.get(words[0]) or found.get_command(click.Context(found), words[0])  # type: ignore[assignment]
            words = words[1:]
        found.make_context(found.name, words)


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_a_command_explains_itself(run: Run, path: tuple[str, ...]) -> None:
    """Every command and every option says what it is."""
    text = run(*path, "--help").output
    assert "Example:" in text
    assert ALL[path].help


def test_the_list_of_commands_says_what_they_do(run: Run) -> None:
    """In the order of the list, with a line each."""
    text = run("--help").output
    for name, (_, line) in COMMANDS.items():
        assert name in text
        assert line.split(maxsplit=1)[0] in text


def test_a_misspelt_command_is_guessed(run: Run) -> None:
    """The nearest right name."""
    assert "did you mean budget?" in run("bugdet", status=2).output


def test_a_wrong_store_is_a_sentence(run: Run) -> None:
    """With the nearest right name, and no traceback."""
    result = run("table", "describe", "--store", "dynamodb://keys?regon=x", status=2)
    assert "did you mean region?" in result.output


def test_a_memory_store_can_not_be_looked_into(run: Run) -> None:
    """It is inside another process."""
    assert "nobody else" in run("table", "describe", "--store", "memory://", status=2).output


def test_a_store_that_is_away_is_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a status of its own."""
    monkeypatch.setattr("idem_middleware.stores.dynamodb.admin._PATIENCE_SECONDS", 0.1)
    result = run(
        "table", "describe", "--store", "dynamodb://keys?region=eu-central-1&endpoint=http://127.0.0.1:9", status=3
    )
    assert result.output.startswith("idem-middleware: DynamoDB table 'keys'")


def test_nothing_of_the_command_line_is_imported_by_the_core() -> None:
    """Nor is what it needs."""
    code = (
        "import sys, idem_middleware; [getattr(idem_middleware, name) for name in idem_middleware.__all__];"
        "print([name for name in ('click', 'rich', 'idem_middleware.cli') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert shown.stdout.strip() == "[]"


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_it_names_the_extra(missing: str) -> None:
    """Instead of an ImportError."""
    code = (
        "import importlib.util as u; find = u.find_spec;"
        f"u.find_spec = lambda name, *rest: None if name == {missing!r} else find(name, *rest);"
        "import idem_middleware.cli as cli; cli.main()"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"{missing} can't be imported: install the extra 'cli'" in ran.stderr
    assert "Traceback" not in ran.stderr

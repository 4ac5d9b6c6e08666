"""The command line of a probe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.settings import Settings, parse_arguments

REQUIRED = ["--framework", "flask", "--port", "8001"]


def parse(*arguments: str) -> Settings:
    return parse_arguments([*REQUIRED, *arguments], "/tmp/state")  # noqa: S108  # nothing is written there


def test_everything_but_framework_and_port_has_a_default() -> None:
    """One worker on loopback, in memory, with the product's own defaults and a log of its own."""
    settings = parse()

    assert (settings.host, settings.workers, settings.store, settings.options) == ("127.0.0.1", 1, "memory://", {})
    assert settings.log_path == Path("/tmp/state/runs.log")  # noqa: S108
    assert settings.url == "http://127.0.0.1:8001"


def test_option_values_are_json() -> None:
    """Numbers, strings, lists, all with their kind."""
    settings = parse("--option", "lease_seconds=2", "--option", 'on_abandoned="refuse"', "--option", "paths=[]")

    assert settings.options == {"lease_seconds": 2, "on_abandoned": "refuse", "paths": []}


def test_a_table_replaces_the_one_of_the_store() -> None:
    """Region and endpoint stay."""
    settings = parse("--store", "dynamodb://one?region=us-east-1", "--table", "two")

    assert settings.store == "dynamodb://two?region=us-east-1"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--option", "lease_seconds"], "takes NAME=JSON"),
        (["--option", "lease_seconds=two"], "is no JSON"),
        (["--option", "a=1", "--option", "a=2"], "given twice"),
        (["--workers", "0"], "at least 1"),
        (["--table", "two"], "needs a dynamodb"),
        (["--nonsense"], "unrecognized arguments"),
    ],
)
def test_wrong_arguments_stop_the_start(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a status that is not zero, and a message that says which one."""
    with pytest.raises(SystemExit) as stopped:
        parse(*arguments)

    assert stopped.value.code == 2
    assert complaint in capsys.readouterr().err


def test_settings_travel_through_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Server workers get them that way."""
    monkeypatch.setenv("IDEM_PROBE_SETTINGS", "")
    settings = parse("--option", "lease_seconds=2")
    settings.to_environment()

    assert Settings.from_environment() == settings

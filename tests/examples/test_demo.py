from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import httpx
import pytest

from example_apps.demo import __main__ as command
from example_apps.demo.errors import DemoError
from example_apps.demo.frameworks import FRAMEWORKS
from tests.support.polling import eventually
from tests.support.ports import accepts_connections, free_port
from tests.support.processes import ROOT, Process

pytestmark = pytest.mark.processes

# It is promised to take less on a machine that does nothing else.
_PATIENCE_SECONDS = 180


def demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "example_apps.demo", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_step_comes_out_as_promised(framework: str) -> None:
    ran = demo("--framework", framework)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Every step came out as promised" in ran.stdout
    assert "BROKEN" not in ran.stdout
    assert "COMPLETED" in ran.stdout, "the record is shown"
    assert ran.stderr == ""


@pytest.mark.thorough
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_broken_promise_is_told_and_makes_it_fail(framework: str) -> None:
    ran = demo("--framework", framework, IDEMPOTENCY_MODE="off")

    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert (
        f"BROKEN: {framework}: 20 duplicates at once, on two servers: the provider really made 22 charges" in ran.stdout
    )
    assert "Every step came out as promised" not in ran.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_app_is_left_running_to_try_until_it_is_stopped(framework: str) -> None:
    port = free_port()
    with Process.module("example_apps.demo", "--serve", framework, "--port", str(port)) as process:
        process.wait_for_line(f"payments_{framework} listens on http://127.0.0.1:{port}")
        provider = process.wait_for_line("  its provider")
        answers = [
            httpx.post(
                f"http://127.0.0.1:{port}/charges",
                json={"amount": 1200, "currency": "eur"},
                headers={"Authorization": "Bearer key-of-anna", "Idempotency-Key": "order-1"},
                timeout=20,
            )
            for _ in range(2)
        ]
        status = process.stop()

    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[1].headers["idempotent-replayed"] == "true"
    assert status == 128 + signal.SIGTERM
    assert not accepts_connections(port), "the app is stopped with it"
    assert not accepts_connections(int(re.findall(r"\d+$", provider)[0])), "so is the provider"


def test_a_busy_port_is_told() -> None:
    port = free_port()
    with Process.module("http.server", "--bind", "127.0.0.1", str(port)):
        eventually(lambda: accepts_connections(port), what="it listens")
        ran = demo("--serve", "starlette", "--port", str(port))

    assert ran.returncode == 2
    assert ran.stderr.startswith(f"demo: port {port} can't be used (Address already in use)")


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("memory://", "so it needs a dynamodb:// URL"),
        ("dynamo://table", "did you mean dynamodb?"),
        ("dynamodb://table?regon=eu-central-1", "did you mean region?"),
    ],
    ids=["forgets", "unknown", "misspelt"],
)
def test_a_store_that_does_not_do_is_told(store: str, told: str) -> None:
    ran = demo("--store", store)

    assert ran.returncode == 2
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_missing_package_is_told_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda package: None if package == "moto" else package)

    with pytest.raises(DemoError, match=r"^moto can't be imported: install the extra 'demo', .*\[demo\]"):
        command._require_packages(["starlette"], embedded=True)
    command._require_packages(["starlette"], embedded=False)


@pytest.mark.parametrize("port", ["0", "65536", "http"])
def test_a_port_that_is_none_is_told(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--serve", "starlette", "--port", port])

    assert "--port" in capsys.readouterr().err


def test_the_story_finds_its_ports_for_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--port", "8000"])

    assert "--port is for --serve" in capsys.readouterr().err

"""Processes that end in the middle of their work, and what the next try finds."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.servers.client import Service, is_fresh, is_problem, is_replay, plan
from tests.servers.probes import ONE_WORKER, Probes
from tests.servers.table import Table
from tests.support.fault_proxy import HANGING, FaultProxy
from tests.support.polling import eventually
from tests.support.probes import INSTALLED_FRAMEWORKS

pytestmark = [pytest.mark.processes, pytest.mark.dynamodb_local, pytest.mark.thorough]

A_LEASE_AND_MORE = 70


def crash(service: Service) -> None:
    """Send a request whose handler ends its process."""
    with pytest.raises(httpx.TransportError):
        service.send(plan(exit=True))
    service.ran(1)


def test_a_crashed_request_runs_again_after_its_lease(short_leased_service: Service) -> None:
    """By the servers' own clocks: nothing but time has to pass.

    Sources: benhendayoussef/idempotency-spring-boot-starter#11, aws-powertools/powertools-lambda-python#1038,
    aws-powertools/powertools-lambda-python#738.
    """
    crash(short_leased_service)

    def taken_over() -> httpx.Response | None:
        answer = short_leased_service.send(plan(echo=True))
        if answer.status_code != 409:
            return answer
        is_problem(answer, "in-progress", 409, retry=True)
        return None

    second = eventually(taken_over, what="the end of the lease", every_seconds=0.1)
    is_fresh(second)
    assert second.json()["attempt"] == 2
    is_replay(short_leased_service.send(), second)
    short_leased_service.ran(2)


def test_a_crashed_request_is_still_running_for_all_the_others(double_service: Service) -> None:
    """Until its lease is over, and it becomes the second run of whoever comes then."""
    crash(double_service)
    for _ in range(4):
        is_problem(double_service.send(), "in-progress", 409, retry=True)
    double_service.ran(1)
    double_service.let_pass(A_LEASE_AND_MORE)
    second = double_service.send(plan(echo=True))
    is_fresh(second)
    assert second.json()["attempt"] == 2
    is_replay(double_service.send(), second)
    double_service.ran(2)


def test_a_crashed_request_never_runs_again_where_that_is_refused(demanding_service: Service) -> None:
    """Its outcome is unknown, and stays so: somebody has to look."""
    crash(demanding_service)
    demanding_service.let_pass(A_LEASE_AND_MORE)
    for _ in range(2):
        is_problem(demanding_service.send(), "outcome-unknown", 409)
    demanding_service.ran(1)


def test_a_crash_between_the_work_and_its_record_is_like_one_in_the_work(double_service: Service) -> None:
    """Nobody has seen an answer, and nobody can know that there was one."""
    with double_service.proxy.failing(HANGING, pk=double_service.pk(), operation="UpdateItem") as failing:
        lost = double_service.send_in_background()
        eventually(lambda: failing.struck, what="the record on its way")
        (run,) = double_service.probe.records(double_service.name)
        os.kill(run["pid"], signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            lost.result()

    double_service.let_pass(A_LEASE_AND_MORE)
    second = double_service.send(plan(echo=True))
    is_fresh(second)
    assert second.json()["attempt"] == 2
    is_replay(double_service.send(), second)
    double_service.ran(2)


def test_a_stream_that_ends_in_a_crash_is_not_replayed(double_service: Service) -> None:
    """Its client got a part, the retry gets a whole answer, of a run of its own."""
    planned = plan(size=4000, chunks=4, chunk_delay=1)
    with double_service.streaming(planned) as pieces:
        assert len(next(pieces)) == 1000
        (run,) = double_service.probe.records(double_service.name)
        os.kill(run["pid"], signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            list(pieces)

    double_service.let_pass(A_LEASE_AND_MORE)
    second = double_service.send(plan(size=4000, chunks=4))
    is_fresh(second)
    assert len(second.content) == 4000
    double_service.ran(2)


@pytest.mark.parametrize("framework", INSTALLED_FRAMEWORKS)
def test_a_server_that_starts_again_knows_what_the_last_one_did(
    framework: str, probes: Probes, dynamodb_local: str, proxy: FaultProxy, tmp_path: Path
) -> None:
    """What was answered is replayed, what was cut off runs again; and an orderly stop cuts nothing off."""
    log = tmp_path / "log"
    with closing(Table(f"restarts-{uuid4().hex}", dynamodb_local)) as table, ExitStack() as stack:
        with probes.started(framework, ONE_WORKER, table, log) as probe:
            answered, cut_off, finished = (stack.enter_context(Service(probe, table, proxy)) for _ in range(3))
            first = answered.send()
            is_fresh(first)
            lost = cut_off.send_in_background(plan(delay=30))
            cut_off.is_running()
            probe.process.kill()
            with pytest.raises(httpx.TransportError):
                lost.result()

        with probes.started(framework, ONE_WORKER, table, log) as probe:
            answered.probe = cut_off.probe = finished.probe = probe
            is_replay(answered.send(), first)
            answered.ran(1)

            is_problem(cut_off.send(), "in-progress", 409, retry=True)
            cut_off.let_pass(A_LEASE_AND_MORE)
            is_fresh(cut_off.send())
            cut_off.ran(2)

            last = finished.send_in_background(plan(delay=1))
            finished.is_running()
            probe.process.terminate()
            is_fresh(last.result())
            stands = finished.record()
            assert stands is not None
            assert stands["status"] == "COMPLETED"

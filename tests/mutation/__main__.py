"""Mutate modules and run their tests: `python -m tests.mutation --module decisions`.

Every mutant is run in a process of its own, forked from one that has imported what is not ours. The tests of the plan
are run file by file, up to the first that fails. A mutant is killed if a test fails, if none can be collected, or if it
takes much more of the processor than the code as it is. Mutants that survive must be listed, with the reason, in
`survivors.txt`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import importlib.abc
import importlib.util
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from tests.mutation.mutants import Mutant, mutants
from tests.mutation.plan import TESTS

ROOT = Path(__file__).resolve().parents[2]
SURVIVORS = Path(__file__).with_name("survivors.txt")
_LEAST_SECONDS = 20
_TIMES_SLOWER = 4
# Of the processor's time, a mutant may take so many times as much as the tests do; of the clock's, which goes on while
# others have the machine, more, lest it waits for ever.
_TIMES_CLOCK = 10
_PROFILE = "mutation"
_OFTEN = 50  # mutants between two words about how far it is
_OPTIONS = (
    "-qx",
    *("-m", "not dynamodb_local"),
    "--assert=plain",  # no mutant's process has the time to rewrite anything
    "--tb=line",
    "--confcutdir=tests",  # the README's examples are none of the tests
    *("-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin"),
    *("--hypothesis-seed=0", f"--hypothesis-profile={_PROFILE}"),
)
_NOT_OURS = (
    "pytest",
    "_hypothesis_pytestplugin",
    "hypothesis",
    "boto3",
    "botocore.exceptions",
    "asyncio",
    "jmespath",
    "python_multipart",
    "moto",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Give 0 if every mutant was killed, or is listed as one that can't be."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--module", action="append", help="the last part of its name; default: all of the plan")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--containing", default="", help="only mutants with this in their names")
    parser.add_argument("--part", default="1/1", help="only every so manieth of them: 1/4, 2/4, …")
    parser.add_argument("--list", action="store_true", help="show the mutants, and run nothing")
    parsed = parser.parse_args(arguments)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for name in _NOT_OURS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if ours := [name for name in sys.modules if name.startswith("idem_middleware")]:
        raise AssertionError(f"the product was imported before it was mutated: {ours}")
    _warm()
    listed = reasons()
    wanted = [name for name in TESTS if not parsed.module or name.rpartition(".")[2] in parsed.module]
    part, parts = map(int, parsed.part.split("/"))
    total, survived, unknown = 0, 0, 0
    for module in wanted:
        path = ROOT / Path(*module.split(".")).with_suffix(".py")
        all_mutants = mutants(path.read_text(), module.rpartition(".")[2])
        chosen = [mutant for mutant in all_mutants if parsed.containing in mutant.name][part - 1 :: parts]
        if parsed.list:
            _print("\n".join(f"{mutant.line:4} {mutant.name}" for mutant in chosen))
            continue
        began_at = time.monotonic()
        alive = []
        for number, (mutant, killed) in enumerate(tried(module, path, chosen, parsed.workers), 1):
            if number % _OFTEN == 0:
                _print(f"  {number} of {len(chosen)} tried")
            if not killed:
                alive.append(mutant)
                _print(f"  SURVIVED line {mutant.line}: {mutant.name}{' (listed)' if mutant.name in listed else ''}")
        seconds = time.monotonic() - began_at
        _print(f"{module}: {len(chosen) - len(alive)} of {len(chosen)} mutants killed, {seconds:.0f} s")
        total, survived = total + len(chosen), survived + len(alive)
        unknown += sum(mutant.name not in listed for mutant in alive)
    if total:
        _print(f"all: {total - survived} of {total} killed ({(total - survived) / total:.1%}), {unknown} not listed")
    return 1 if unknown else 0


def reasons() -> dict[str, str]:
    """Why those mutants are left that are: a line each, the mutant's name, then indented the reason."""
    found: dict[str, str] = {}
    name = ""
    for line in SURVIVORS.read_text().splitlines():
        if line.startswith("#") or not line:
            continue
        if line.startswith(" "):
            found[name] = f"{found[name]} {line.strip()}".strip()
        else:
            name = line
            found[name] = ""
    return found


def tried(module: str, path: Path, chosen: Sequence[Mutant], workers: int) -> Iterator[tuple[Mutant, bool]]:
    """Each with whether it was killed.

    Raises:
        RuntimeError: the tests fail without any mutant.
    """
    _, status, used = os.wait4(_forked(module, path, None, limit_seconds=600), 0)
    if status != 0:
        raise RuntimeError(f"the tests of {module} fail as it is")
    limit = max(_LEAST_SECONDS, int(_TIMES_SLOWER * (used.ru_utime + used.ru_stime)))
    # pytest collects all garbage of its process, and does so several times: not what each of them has from here.
    gc.collect()
    gc.freeze()
    running: dict[int, Mutant] = {}
    left = list(reversed(chosen))
    while left or running:
        while left and len(running) < workers:
            mutant = left.pop()
            running[_forked(module, path, mutant, limit_seconds=limit)] = mutant
        process, status = os.wait()
        yield running.pop(process), status != 0


def _forked(module: str, path: Path, mutant: Mutant | None, *, limit_seconds: int) -> int:
    """Start the tests in a process of its own; gives its number."""
    process = os.fork()
    if process:
        return process
    # A mutant may go round for ever, or wait for what never comes.
    resource.setrlimit(resource.RLIMIT_CPU, (limit_seconds, limit_seconds))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_TIMES_CLOCK * limit_seconds)
    status = 1
    try:
        status = _tested(module, path, mutant)
    except BaseException:  # noqa: BLE001 - a mutant may do anything, and its process must end here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _tested(module: str, path: Path, mutant: Mutant | None) -> int:
    if mutant is not None:
        sys.meta_path.insert(0, _Finder(module, path, compile(mutant.tree(), str(path), "exec")))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
    import pytest  # noqa: PLC0415 - only in the child

    for tests in TESTS[module]:
        if failed := int(pytest.main([*_OPTIONS, tests])):
            return failed
    return 0


def _warm() -> None:
    """Make once what Hypothesis would make anew in every process: tables of all characters take it seconds."""
    from hypothesis import Phase, given, settings  # noqa: PLC0415 - not for --list
    from hypothesis import strategies as st  # noqa: PLC0415

    # The first example that fails is enough: no time is spent on making it smaller.
    settings.register_profile(_PROFILE, deadline=None, database=None, phases=(Phase.explicit, Phase.generate))

    @settings(settings.get_profile(_PROFILE), max_examples=1)
    @given(st.tuples(st.text(), st.text(st.characters(max_codepoint=255)), st.from_regex("a", fullmatch=True)))
    def read(texts: tuple[str, ...]) -> None:
        """Has nothing to do."""

    with warnings.catch_warnings():  # to be slow here is the point
        warnings.simplefilter("ignore")
        read()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the mutated code for one module."""

    def __init__(self, module: str, path: Path, code: CodeType) -> None:
        self._module = module
        self._path = path
        self._code = code

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Only for that one."""
        if fullname != self._module:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        """Run it."""
        exec(self._code, module.__dict__)  # noqa: S102 - it is the product's own


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:  # nothing of it is kept for the next run
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = folder
        outcome = main()
    sys.exit(outcome)

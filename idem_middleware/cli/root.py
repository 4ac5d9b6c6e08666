"""The command with all commands in it. To add one, write it in a module of `commands` and list it in COMMANDS."""

from __future__ import annotations

from importlib import import_module

import click

from idem_middleware import __version__
from idem_middleware.cli.terminal import suggestion, telling

__all__ = ["COMMANDS", "root"]

_PACKAGE = "idem_middleware.cli.commands"

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (its module and attribute, one line for --help; the module is imported when the command is used)
    "table": (f"{_PACKAGE}.table:table", "Create, adapt or describe the table; print infrastructure code."),
    "doctor": (f"{_PACKAGE}.doctor:doctor", "Check a table and a configuration; say how to mend what is wrong."),
    "show": (f"{_PACKAGE}.records:show", "What happened to a key."),
    "list": (f"{_PACKAGE}.records:list_", "Records that need a look: abandoned, failed, of unknown outcome."),
    "release": (f"{_PACKAGE}.records:release_", "Let the next retry of an abandoned claim run."),
    "erase": (f"{_PACKAGE}.erase:erase", "Erase a key's stored answer; that the work was done stays known."),
    "sweep": (f"{_PACKAGE}.sweep:sweep", "Delete what is over, where the table has no TTL."),
    "conformance": (f"{_PACKAGE}.conformance:conformance", "Send the draft's sequences to a running server."),
    "budget": (f"{_PACKAGE}.budget:budget", "What the table will cost for a given load."),
    "dashboard": (f"{_PACKAGE}.boards:dashboard", "Print a Grafana dashboard."),
    "alerts": (f"{_PACKAGE}.boards:alerts", "Print Prometheus alert rules."),
}


class _LazyGroup(click.Group):
    """Imports a command when it is used: `--help` of one needs nothing of the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            ctx.fail(f"There is no command {args[0]!r}{suggestion(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        with telling():
            return super().invoke(ctx)


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 as it should be; 1 not so, or not done; 2 wrong usage; 3 no answer from the table.",
)
@click.version_option(__version__, prog_name="idem-middleware")
def root() -> None:
    """HTTP idempotency on DynamoDB, for the person who runs it."""

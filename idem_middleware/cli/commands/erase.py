"""`erase`: the stored answer of one key, before its retention is over."""

from __future__ import annotations

import click

from idem_middleware.cli.commands.records import Asked, named, which_key
from idem_middleware.cli.terminal import at_home, examples, json_option, refuse, say, show_json, store_option
from idem_middleware.erasure import Erasure
from idem_middleware.erasure import erase as erase_answer
from idem_middleware.keys import short_digest
from idem_middleware.stores.dynamodb import DynamoDBStore

__all__ = ["erase"]

_MEANINGS = {
    Erasure.ERASED: "The answer is erased. Retries get 409 response-not-stored, and nothing runs again.",
    Erasure.NOTHING_KEPT: "No answer is kept under this key.",
    Erasure.IN_PROGRESS: "it is running: erase it again when it has ended",
    Erasure.UNREADABLE: "a newer version wrote it, or it is damaged: the item has to be deleted by hand",
}


@click.command(epilog=examples("erase order-8 --caller acct_7", "erase --digest 4f1d2a9c0b3e --yes"))
@which_key
@store_option
@click.option("--yes", is_flag=True, help="Don't ask.")
@json_option
def erase(*, asked: Asked, store: DynamoDBStore, yes: bool, as_json: bool) -> None:
    """Erase what is stored of a key's answer, in the record and beside it: a person's right to that.

    That the work was done stays known until the retention is over, so that no retry does it again. Backups
    (point-in-time recovery) have it for as long as they are kept.
    """
    name = named(store, asked)
    if not yes:
        click.confirm("The stored answer will be gone for good. Erase it?", abort=True, err=True)
    outcome = erase_answer(at_home(store, name), name)
    if as_json:
        show_json({"key_digest": short_digest(name), "outcome": outcome.value})
    elif outcome in (Erasure.ERASED, Erasure.NOTHING_KEPT):
        say(_MEANINGS[outcome])
    if outcome not in (Erasure.ERASED, Erasure.NOTHING_KEPT):
        refuse(f"not erased: {_MEANINGS[outcome]}")

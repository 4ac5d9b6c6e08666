"""Charges orders that come by a queue, each once."""

from __future__ import annotations

import json
from typing import Any

from idem_middleware import Engine, Lease, Options, RequestRefused

# In production "dynamodb://idempotency_keys?region=…". Kept for longer than a message can come back.
engine = Engine("memory://", Options(namespace="billing", retention_seconds=30 * 86400))


def charge(order: dict[str, Any], lease: Lease | None) -> dict[str, Any]:
    """The work. The provider recognises the key that it is given, if a crash makes a second attempt of this."""
    return {"order": order["id"], "provider_key": lease.derive_key("provider") if lease else None}


def consume(body: str) -> dict[str, Any]:
    """Charge the order of one message; a copy of the message gets the first one's result."""
    order = json.loads(body)["order"]
    what = {"order": order["id"], "amount": order["amount"], "currency": order["currency"]}
    return engine.run_once(f"charge:{order['id']}", what, lambda lease: charge(order, lease))


def poll(sqs: Any, queue_url: str, dead_letter_url: str) -> int:
    """Take what is there, once; gives the number of messages that are done with."""
    done = 0
    received = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
    for message in received.get("Messages", []):
        handle = {"QueueUrl": queue_url, "ReceiptHandle": message["ReceiptHandle"]}
        try:
            consume(message["Body"])
        except RequestRefused as refused:
            seconds = refused.problem.retry_after_seconds
            if seconds is not None:  # not ours to do now: give it back until that may have changed
                sqs.change_message_visibility(**handle, VisibilityTimeout=seconds)
                continue
            sqs.send_message(QueueUrl=dead_letter_url, MessageBody=message["Body"])
        except Exception:  # the work failed: it comes again, and maxReceiveCount ends that
            continue
        sqs.delete_message(**handle)
        done += 1
    return done

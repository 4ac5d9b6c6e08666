"""The same in Lambda: on a queue, on an event bus, and called directly."""

from __future__ import annotations

from typing import Any

from example_apps.messages.consumer import consume, engine
from idem_middleware import RequestRefused


def on_queue(event: dict[str, Any], context: object) -> dict[str, Any]:
    """A batch from SQS, with ReportBatchItemFailures: one message does not bring the others back."""
    failures = []
    for record in event["Records"]:
        try:
            consume(record["body"])
        except Exception:  # refused, or failed: it comes again, and maxReceiveCount ends that
            failures.append({"itemIdentifier": record["messageId"]})
    engine.drain(timeout_seconds=2.0)
    return {"batchItemFailures": failures}


def on_event(event: dict[str, Any], context: object) -> str:
    """An event from EventBridge: what it is about is in `detail`, everything around it belongs to the delivery."""
    detail = event["detail"]
    key = f"{event['detail-type']}:{detail['orderId']}:{detail['revision']}"
    what = {"order": detail["orderId"], "revision": detail["revision"], "amount": detail["amount"]}
    try:
        return engine.run_once(key, what, lambda lease: f"shipped {detail['orderId']}")
    except RequestRefused as refused:
        if refused.problem.retry_after_seconds is None:
            return f"parked: {refused.problem.type.slug}"  # in a table, a queue, a ticket: for a person
        raise  # Lambda tries again after a minute, and two minutes later; then its dead-letter queue has it
    finally:
        engine.drain(timeout_seconds=2.0)


def on_call(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Called directly; asynchronously, Lambda itself sends it again where it failed."""
    order = event["order"]
    try:
        return engine.run_once(f"refund:{order['id']}", order, lambda lease: {"refunded": order["id"]})
    finally:
        engine.drain(timeout_seconds=2.0)

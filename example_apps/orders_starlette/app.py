r"""An orders API on Starlette. Its stock lies in a DynamoDB table, and is never reserved twice or lost.

    IDEMPOTENCY_STORE=dynamodb://KEYS ORDERS_TABLE=orders ORDERS_STOCK_TABLE=stock \
        uvicorn example_apps.orders_starlette.app:app

Both tables have the one key attribute `id`, a string. Three ways to write them together with the key's record, from
the shortest to the longest handler:

    /orders         the order and its answer in one transaction: nothing is left to do after it
    /deliveries     the order first, with a checkpoint; then other work, which a second attempt goes on with
    /reservations   the order together with the claim: who comes first has it, and the handler runs for those alone
"""

from __future__ import annotations

import json
import os
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from idem_middleware import Engine, Options, TransactionRefused, store_from_url
from idem_middleware import Request as IncomingRequest
from idem_middleware import Response as Answer
from idem_middleware.transactions import Put, Update
from idem_starlette import IdempotencyMiddleware

ORDERS = os.environ.get("ORDERS_TABLE", "orders")
STOCK = os.environ.get("ORDERS_STOCK_TABLE", "stock")

engine = Engine(
    store_from_url(os.environ["IDEMPOTENCY_STORE"]),
    Options(caller="shared", lease_seconds=float(os.environ.get("ORDERS_LEASE_SECONDS", "60"))),
)


async def order(request: Request) -> Response:
    """Order `{"sku": "a", "quantity": 2}`."""
    wanted = await request.json()
    order_id = request.state.idempotency.derive_key("order")
    answer = JSONResponse({"order": order_id, **wanted}, 201)
    try:
        await request.state.idempotency.complete_with(reservation(order_id, **wanted), answer)
    except TransactionRefused:
        return sold_out()
    return answer


async def deliver(request: Request) -> Response:
    """Order, and have it delivered."""
    wanted = await request.json()
    lease = request.state.idempotency
    order_id = lease.derive_key("order")
    if lease.checkpoint is None:
        try:
            await lease.transact(reservation(order_id, **wanted), checkpoint=order_id)
        except TransactionRefused:
            return sold_out()
    # From here on the order exists, for this attempt and for every later one. The carrier gets the same number from
    # each of them, and so a parcel is sent once.
    return JSONResponse({"order": order_id, "parcel": lease.derive_key("parcel"), **wanted}, 201)


async def reserve(request: Request) -> Response:
    """Reserve until tomorrow. What `reservation_of` says was written with the claim."""
    return JSONResponse({"reserved": await request.json()}, 201)


def reservation(order_id: str, sku: str, quantity: int) -> list[Update | Put]:
    """Take it from the stock, if there is enough, and note the order."""
    return [
        Update(
            STOCK,
            {"id": sku},
            "SET available = available - :quantity",
            condition="available >= :quantity",
            values={":quantity": quantity},
        ),
        Put(ORDERS, {"id": order_id, "sku": sku, "quantity": quantity}, condition="attribute_not_exists(id)"),
    ]


def reservation_of(request: IncomingRequest) -> list[Update | Put]:
    """The items that are written with the claim of this request."""
    wanted: Any = request.json()
    return reservation(f"reservation-{request.header('idempotency-key')}", **wanted)


def sold_out() -> Response:
    """A final answer, which the client's retries get, too."""
    return JSONResponse({"error": "sold out"}, 409)


def nothing_left(_request: IncomingRequest, refused: TransactionRefused) -> Answer:
    """Here nothing is final: no claim is left, and the same request may be sent again when there is stock."""
    left = 0 if refused.old_item is None else int(refused.old_item["available"]["N"])
    return Answer(
        409, (("content-type", "application/json"),), json.dumps({"error": "sold out", "left": left}).encode()
    )


app = Starlette(
    routes=[
        Route("/orders", order, methods=["POST"], middleware=[Middleware(IdempotencyMiddleware, engine=engine)]),
        Route("/deliveries", deliver, methods=["POST"], middleware=[Middleware(IdempotencyMiddleware, engine=engine)]),
        Route(
            "/reservations",
            reserve,
            methods=["POST"],
            middleware=[
                Middleware(
                    IdempotencyMiddleware,
                    engine=engine,
                    claim_items=reservation_of,
                    on_claim_refused=nothing_left,
                )
            ],
        ),
    ],
)

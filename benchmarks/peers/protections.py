"""What protects them: our adapters, idemkit's middleware, Powertools' decorator, and two writes by hand."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.peers.applications import Answer, AsyncGuard, Guard, Work, django_app

TABLE = "keys"
REGION = "eu-central-1"
MEMORY = "memory://?max_entries=2000000"


# --- ours -------------------------------------------------------------------------------------------------------------


def our_table(url: str, **settings: Any) -> Any:
    """Our store."""
    return import_module("idem_middleware").DynamoDBStore(TABLE, endpoint=url, region=REGION, **settings)


def ours(app: Any, store: Any, **options: Any) -> Any:
    """Our adapter for Starlette or Flask."""
    if hasattr(app, "wsgi_app"):
        import_module("idem_flask").Idempotency(app, store=store, caller="shared", **options)
    else:
        middleware = import_module("idem_starlette").IdempotencyMiddleware
        app.add_middleware(middleware, store=store, caller="shared", **options)
    return app


def ours_in_django(store: Any, *, on_a_loop: bool) -> Any:
    """Our adapter for Django."""
    return django_app(
        on_a_loop=on_a_loop,
        middleware=["idem_django.IdempotencyMiddleware"],
        INSTALLED_APPS=["idem_django"],
        IDEMPOTENCY={"STORE": store, "CALLER": "shared"},
    )


# --- idemkit ----------------------------------------------------------------------------------------------------------


def idemkit(app: Any, url: str | None = None, *, wsgi: bool) -> Any:
    """The middleware of idemkit around a whole application, with its defaults, but that a duplicate does not wait."""
    kit = import_module("idemkit")
    backend = (
        kit.InMemoryBackend()
        if url is None
        else kit.DynamoBackend(table="idemkit", endpoint_url=url, region_name=REGION, create_table=False)
    )
    config = kit.HttpConfig(scope=lambda _: "shared", wait_timeout_seconds=0.0)
    middleware = kit.WSGIIdempotencyMiddleware if wsgi else kit.IdempotencyMiddleware
    return middleware(app, backend=backend, config=config)


# --- Powertools -------------------------------------------------------------------------------------------------------


def powertools(url: str) -> Guard:
    """Powertools around the work of the view, with the key and the payload compared."""
    tools = import_module("aws_lambda_powertools.utilities.idempotency")
    errors = import_module("aws_lambda_powertools.utilities.idempotency.exceptions")
    boto3 = import_module("boto3")
    table = tools.DynamoDBPersistenceLayer(
        table_name="powertools", boto3_client=boto3.client("dynamodb", endpoint_url=url, region_name=REGION)
    )
    config = tools.IdempotencyConfig(event_key_jmespath="key", payload_validation_jmespath="body")

    @tools.idempotent_function(data_keyword_argument="data", persistence_store=table, config=config)  # type: ignore[untyped-decorator, unused-ignore]
    def run(data: dict[str, Any], work: Work) -> Any:  # noqa: ARG001  # what it is known by
        return work()

    def guard(key: str, body: bytes, work: Work) -> Answer:
        try:
            return 201, run(data={"key": key, "body": json.loads(body)}, work=work)
        except errors.IdempotencyAlreadyInProgressError:
            return 409, {"error": "in progress"}
        except errors.IdempotencyValidationError:
            return 422, {"error": "another request"}

    return guard


# --- by hand ----------------------------------------------------------------------------------------------------------


def by_hand(send: Callable[[str, dict[str, Any]], object]) -> Guard:
    """A PutItem and an UpdateItem around the work: the least that somebody would write for it."""

    def guard(key: str, body: bytes, work: Work) -> Answer:
        send("put_item", claim(key, body))
        answer = work()
        send("update_item", completion(key, answer))
        return 201, answer

    return guard


def by_hand_on_a_loop(send: Callable[[str, dict[str, Any]], Any]) -> AsyncGuard:
    """The same on an event loop."""

    async def guard(key: str, body: bytes, work: Work) -> Answer:
        await send("put_item", claim(key, body))
        answer = work()
        await send("update_item", completion(key, answer))
        return 201, answer

    return guard


def claim(key: str, body: bytes) -> dict[str, Any]:
    """What a hand-made protection writes first."""
    now = time.time()
    item = {
        "pk": {"S": key},
        "status": {"S": "PENDING"},
        "owner": {"S": secrets.token_hex(16)},
        "fingerprint": {"S": hashlib.sha256(body).hexdigest()},
        "expires_at": {"N": str(now + 60)},
        "ttl": {"N": str(int(now) + 86400)},
    }
    return {"TableName": TABLE, "Item": item, "ConditionExpression": "attribute_not_exists(pk)"}


def completion(key: str, answer: dict[str, Any]) -> dict[str, Any]:
    """What it writes last."""
    return {
        "TableName": TABLE,
        "Key": {"pk": {"S": key}},
        "UpdateExpression": "SET #s = :s, #r = :r",
        "ConditionExpression": "#s = :p",
        "ExpressionAttributeNames": {"#s": "status", "#r": "response"},
        "ExpressionAttributeValues": {
            ":s": {"S": "COMPLETED"},
            ":p": {"S": "PENDING"},
            ":r": {"S": json.dumps(answer)},
        },
    }


# --- what it sends by -------------------------------------------------------------------------------------------------


def boto3_as_ours(url: str) -> Callable[[str, dict[str, Any]], object]:
    """A client of boto3 with the same settings as our store's."""
    config = import_module("idem_middleware.stores.dynamodb.client").pinned_config(None, 50)
    return _methods_of(import_module("boto3").client("dynamodb", endpoint_url=url, region_name=REGION, config=config))


def boto3_as_it_comes(url: str) -> Callable[[str, dict[str, Any]], object]:
    """A client of boto3 with no settings."""
    return _methods_of(import_module("boto3").client("dynamodb", endpoint_url=url, region_name=REGION))


def _methods_of(client: Any) -> Callable[[str, dict[str, Any]], object]:
    return lambda operation, document: getattr(client, operation)(**document)


def signed_post(url: str) -> Callable[[str, dict[str, Any]], object]:
    """No client: botocore's own signer, and a POST by urllib3."""
    signed = _signed_by_botocore(url)
    pool = import_module("urllib3").connection_from_url(url, maxsize=64)

    def send(operation: str, document: dict[str, Any]) -> object:
        body, headers = signed(operation, document)
        answer = pool.urlopen("POST", "/", body=body, headers=headers, retries=False)
        return _checked(answer.status, answer.data)

    return send


def signed_post_by_aiohttp(url: str) -> Callable[[str, dict[str, Any]], Any]:
    """The same on an event loop, by aiohttp."""
    aiohttp = import_module("aiohttp")
    signed = _signed_by_botocore(url)
    sessions: list[Any] = []

    async def send(operation: str, document: dict[str, Any]) -> object:
        if not sessions:
            sessions.append(aiohttp.ClientSession())
        body, headers = signed(operation, document)
        async with sessions[0].post(url, data=body, headers=headers) as answer:
            return _checked(answer.status, await answer.read())

    return send


def our_transport(url: str) -> Callable[[str, dict[str, Any]], Any]:
    """Our own lean transport over aiohttp, which keeps the signing key: the lowest floor there is."""
    transport: Callable[[str, dict[str, Any]], Any] = our_table(url, transport="lean").to_async()._transport  # noqa: SLF001  # what is compared is below the store
    return transport


def _signed_by_botocore(url: str) -> Callable[[str, dict[str, Any]], tuple[bytes, dict[str, str]]]:
    auth, awsrequest = import_module("botocore.auth"), import_module("botocore.awsrequest")
    credentials = import_module("botocore.session").get_session().get_credentials().get_frozen_credentials()
    signer = auth.SigV4Auth(credentials, "dynamodb", REGION)

    def signed(operation: str, document: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
        body = json.dumps(document).encode()
        target = f"DynamoDB_20120810.{operation.title().replace('_', '')}"
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": target}
        request = awsrequest.AWSRequest("POST", f"{url}/", data=body, headers=headers)
        signer.add_auth(request)
        return body, dict(request.headers.items())

    return signed


def _checked(status: int, content: bytes) -> object:
    if status != 200:  # noqa: PLR2004
        raise RuntimeError(content)
    return json.loads(content)

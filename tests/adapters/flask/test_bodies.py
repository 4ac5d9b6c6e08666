"""A view reads its request in every way that Flask offers, as if nobody had read it before."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask, Response, jsonify, request
from flask.typing import ResponseReturnValue

from idem_flask import Idempotency
from idem_middleware import EventKind
from idem_middleware.body import SPOOL_BYTES
from tests.adapters.flask.shop import Shop, problem, replayed
from tests.adapters.support.bench import Bench
from tests.adapters.support.server import Server, environ_of

Answer = Callable[[], ResponseReturnValue]

FORM = "application/x-www-form-urlencoded"


def whole_stream() -> bytes:
    return request.stream.read()


def stream_in_pieces() -> bytes:
    return b"".join(iter(lambda: request.stream.read(5000), b""))


def lines() -> bytes:
    return b"".join(request.stream)


def data() -> bytes:
    return request.data


def data_without_cache() -> bytes:
    return request.get_data(cache=False)


def form() -> object:
    return request.form


def four_bytes() -> bytes:
    return request.stream.read(4)


def one_line() -> bytes:
    return request.stream.readline()


def input_of_the_server() -> bytes:
    body: bytes = request.environ["wsgi.input"].read(int(request.environ.get("CONTENT_LENGTH") or 0))
    return body


@pytest.mark.parametrize(
    ("read", "size"),
    [
        *itertools.product(
            [whole_stream, stream_in_pieces, data, data_without_cache, input_of_the_server], [0, 11, SPOOL_BYTES + 5]
        ),
        (lines, 1000),  # one byte at a time, where Werkzeug limits its stream
    ],
)
def test_bytes_come_whole(bench: Bench, read: Callable[[], bytes], size: int) -> None:
    seen: list[bytes] = []

    def answer() -> str:
        seen.append(read())
        return "done"

    body = os.urandom(size)
    shop = Shop(bench, answer)
    assert shop.post(data=body, content_type="application/octet-stream").status_code == 200
    assert seen == [body]


class TestForms:
    """Local probe of Flask: a fingerprint that drains the input leaves the view an empty form."""

    @staticmethod
    def seen() -> Response:
        return jsonify(
            form=request.form.to_dict(flat=False), files={n: f.read().decode() for n, f in request.files.items()}
        )

    @pytest.mark.parametrize("key", ["k", None])
    def test_urlencoded_ones(self, bench: Bench, key: str | None) -> None:
        answer = Shop(bench, self.seen, require_key=False).post(data={"a": ["1", "2"], "b": "3"}, key=key)
        assert answer.get_json() == {"form": {"a": ["1", "2"], "b": ["3"]}, "files": {}}

    @pytest.mark.parametrize("key", ["k", None])
    def test_multipart_ones_with_files(self, bench: Bench, key: str | None) -> None:
        upload = {"a": "1", "file": (io.BytesIO(b"text"), "a.txt")}
        answer = Shop(bench, self.seen, require_key=False).post(data=upload, key=key)
        assert answer.get_json() == {"form": {"a": ["1"]}, "files": {"file": "text"}}

    def test_a_large_file_is_in_a_temporary_file_of_flasks_as_ever(self, bench: Bench) -> None:
        kinds: list[str] = []

        def answer() -> str:
            kinds.append(type(request.files["file"].stream).__name__)
            return str(len(request.files["file"].read()))

        part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n%s\r\n--b--\r\n'
        for mode in ("enforce", "off"):
            server = Shop(bench, answer, mode=mode).server()
            seen = server.post(body=part % (b"x" * 2_000_000), CONTENT_TYPE="multipart/form-data; boundary=b")
            assert seen.body == b"2000000"
        assert kinds[0] == kinds[1]

    def test_json_ones(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: jsonify(request.get_json()))
        assert shop.post(json={"a": [1]}).get_json() == {"a": [1]}

    def test_no_form_where_before_request_has_used_it_up_as_ever(self, bench: Bench) -> None:
        forms = []
        for options in ({}, {"mode": "off"}):
            shop = Shop(bench, self.seen, **options)
            shop.app.before_request(lambda: request.get_data(cache=False) and None)
            forms.append(shop.post(data={"a": "1"}).get_json())
        assert forms[0] == forms[1] == {"form": {}, "files": {}}


class TestReadBefore:
    """By functions in front of the view."""

    @pytest.mark.parametrize("read", [data, form, four_bytes, one_line], ids=lambda function: function.__name__)
    def test_is_compared_whole_all_the_same(self, bench: Bench, read: Callable[[], object]) -> None:
        shop = Shop(bench)

        @shop.app.before_request
        def before() -> None:
            read()

        assert shop.post(data=b"a=1&b=2", content_type=FORM).status_code == 201
        assert replayed(shop.post(data=b"a=1&b=2", content_type=FORM))
        assert problem(shop.post(data=b"a=1&b=3", content_type=FORM)) == "key-reused"

    def test_goes_on_where_it_was(self, bench: Bench) -> None:
        shop = Shop(bench, whole_stream)
        shop.app.before_request(lambda: request.stream.read(4) and None)
        assert shop.post(data=b"headbody").data == b"body"

    def test_by_a_middleware_further_out_that_puts_it_back(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: request.data)
        inner = shop.app.wsgi_app

        def reading(environ: Any, start_response: Any) -> Any:
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read())
            return inner(environ, start_response)

        shop.app.wsgi_app = reading  # type: ignore[method-assign]
        assert shop.post(data=b"body").data == b"body"
        assert problem(shop.post(data=b"other")) == "key-reused"

    def test_by_a_middleware_further_in_that_replaces_it(self, bench: Bench) -> None:
        app = Flask("shop")
        inner = app.wsgi_app

        def upper(environ: Any, start_response: Any) -> Any:
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read().upper())
            return inner(environ, start_response)

        app.wsgi_app = upper  # type: ignore[method-assign]
        Idempotency(app, engine=bench.engine)
        app.post("/orders")(lambda: request.data)
        server = Server(app)
        assert server.post(body=b"body").body == b"BODY"
        assert server.post(body=b"body").replayed
        assert server.post(body=b"other").status == 422


class TestLimits:
    """Ours, and Flask's."""

    @pytest.mark.parametrize("chunked", [False, True])
    def test_a_body_beyond_ours_is_refused_and_claims_nothing(self, bench: Bench, chunked: bool) -> None:  # noqa: FBT001
        """NousResearch/hermes-agent: bodies of any size were buffered for their hash, before anybody was asked.

        Sources: paveg/hono-idempotency#79, josipmusa/idempotency4j#43.
        """
        shop = Shop(bench, max_request_bytes=100)
        environ = environ_of(body=b"x" * 101, chunked=chunked)
        source = environ["wsgi.input"]
        assert shop.server().serve(environ).status == 413
        assert (shop.runs, bench.calls) == (0, [])
        assert chunked or source.tell() == 0

    def test_is_found_out_even_if_before_request_has_read_it_all(self, bench: Bench) -> None:
        shop = Shop(bench, max_request_bytes=100)
        shop.app.before_request(lambda: request.get_data() and None)
        assert shop.server().post(body=b"x" * 101, chunked=True).status == 413

    def test_beyond_ours_it_runs_with_its_whole_body_while_observing(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: request.data, max_request_bytes=100, mode="observe")
        assert shop.server().post(body=b"x" * 101, chunked=True).body == b"x" * 101
        assert bench.told(EventKind.REFUSED)[-1].reason == "request-too-large"

    @pytest.mark.parametrize("chunked", [False, True])
    @pytest.mark.parametrize("read", [data, whole_stream, lambda: b""], ids=["data", "stream", "nothing"])
    def test_flasks_holds_for_who_reads_as_ever(
        self,
        bench: Bench,
        read: Callable[[], bytes],
        *,
        chunked: bool,
    ) -> None:
        seen = []
        for mode in ("enforce", "off"):
            shop = Shop(bench, lambda: str(len(read())), mode=mode)
            shop.app.config["MAX_CONTENT_LENGTH"] = 100
            answer = shop.server().post(body=b"x" * 1000, chunked=chunked)
            seen.append((answer.status, answer.body))
        assert seen[0] == seen[1]

    def test_without_a_key_nothing_is_read(self, bench: Bench) -> None:
        environ = environ_of(key=None, body=b"x" * 1000)
        source = environ["wsgi.input"]
        assert Shop(bench).server().serve(environ).status == 400
        assert source.tell() == 0

    def test_where_nothing_is_protected_nothing_is_kept(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: str(request.environ["wsgi.input"]._kept), exempt_paths=["/"])
        shop.app.before_request(lambda: request.stream.read(4) and None)
        assert shop.post(data=b"headbody").text == "None"


class TestHalfARequest:
    """The client left while it was sending."""

    def test_claims_nothing(self, bench: Bench) -> None:
        shop = Shop(bench)
        environ = environ_of(body=b"half")
        environ["CONTENT_LENGTH"] = "100"
        assert shop.server().serve(environ).status == 400
        assert (shop.runs, bench.calls) == (0, [])

    def test_goes_on_as_ever_while_observing(self, bench: Bench) -> None:
        shop = Shop(bench, lambda: request.data, mode="observe")
        environ = environ_of(body=b"half")
        environ["CONTENT_LENGTH"] = "100"
        assert shop.server().serve(environ).status == 400  # Werkzeug's own word for a client that left
        assert shop.runs == 1


class TestWhatIsTheSame:
    """Two requests under one key."""

    def test_a_multipart_body_with_another_boundary_is(self, bench: Bench) -> None:
        """chatvector-ai/chatvector-ai#520: clients choose a new boundary for each try."""

        def body(boundary: str, content: str = "text") -> dict[str, Any]:
            part = f'--{boundary}\r\nContent-Disposition: form-data; name="a"\r\n\r\n{content}\r\n--{boundary}--\r\n'
            return {"data": part.encode(), "content_type": f"multipart/form-data; boundary={boundary}"}

        shop = Shop(bench)
        shop.post(**body("one"))
        assert replayed(shop.post(**body("two")))
        assert problem(shop.post(**body("one", "Text"))) == "key-reused"

    @pytest.mark.parametrize(
        ("first", "second", "same"),
        [
            ('{"a": 1, "b": [1, 2]}', '{"b":[1,2],"a":1}', True),
            ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
            ('{"a": 1}', '{"a": 1.0}', False),
            ("{", "{", True),
            ("", "{}", False),
        ],
    )
    def test_json_in_another_order_is(self, bench: Bench, first: str, second: str, same: bool) -> None:  # noqa: FBT001
        """aws-powertools/powertools-lambda-python#638: only the order of members and white space differ."""
        shop = Shop(bench)
        shop.post(data=first, content_type="application/json")
        again = shop.post(data=second, content_type="application/json")
        assert replayed(again) if same else problem(again) == "key-reused"

    @pytest.mark.parametrize(
        ("path", "same"), [("/orders?b=2&a=1", True), ("/orders?a=%31&b=2", True), ("/orders?a=2&b=2", False)]
    )
    def test_a_query_in_another_order_is(self, bench: Bench, path: str, same: bool) -> None:  # noqa: FBT001
        """pathosDev/actor-ts#609, theam/facility#196: a dry run must not be replayed for the real one."""
        shop = Shop(bench)
        shop.post("/orders?a=1&b=2")
        again = shop.post(path)
        assert replayed(again) if same else problem(again) == "key-reused"

    def test_another_path_or_method_is_not(self, bench: Bench) -> None:
        """nensii21/devlink#1195, RamaAditya49/titen#37: the same key on another resource."""
        shop = Shop(bench)
        shop.app.add_url_rule(
            "/items/<int:number>", view_func=lambda number: f"{number}", methods=["PUT"], endpoint="i"
        )
        client = shop.client()
        headers = {"Idempotency-Key": "k"}
        assert client.put("/items/1", headers=headers).text == "1"
        assert problem(client.put("/items/2", headers=headers)) == "key-reused"
        assert problem(shop.post()) == "key-reused"

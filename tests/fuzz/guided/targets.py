"""What is fuzzed: each target takes any bytes, and fails if a parser does anything but parse or refuse."""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.exceptions import ChecksumError, ClientError
from botocore.parsers import ResponseParserError

from idem_middleware.bodies import unpack
from idem_middleware.body import RequestBody
from idem_middleware.canonical.json import canonical_json, load_json_lossless
from idem_middleware.canonical.multipart import multipart_digest
from idem_middleware.canonical.query import canonical_query
from idem_middleware.ciphers import AesGcm, Unauthentic
from idem_middleware.decisions import Attempt, Execute, Replay, decide
from idem_middleware.fingerprint import canonical_value, fingerprints
from idem_middleware.keys import KeyInvalid, parse_key, validate_key
from idem_middleware.options import Options
from idem_middleware.problems import ProblemType
from idem_middleware.records import SCHEMA_VERSION, KeptResponse, OmittedResponse, Status
from idem_middleware.sealing import Rejected, _read
from idem_middleware.stores.dynamodb.items import item_of, record_of
from idem_middleware.stores.dynamodb.lean.wire import decode

__all__ = ["TARGETS"]

Target = Callable[[bytes], None]

_PK = "p" * 64
_NOW = 1_700_000_000.0
_MOST_BYTES = 64 * 1024
_LINE_END = re.compile(r"[\r\n\0]")
_CIPHER = AesGcm({"a": b"k" * 32})
_OPTIONS = Options(caller="shared")
_ATTEMPT = Attempt(pk=_PK, owner="me", fingerprint=b"f", caller_digest=None, options=_OPTIONS)


def key(data: bytes) -> None:
    """A header line: a key that is valid wherever it comes from, or KeyInvalid."""
    line = data.decode("latin-1")
    found = {}
    for strict in (False, True):
        try:
            found[strict] = parse_key([line], strict=strict)
        except KeyInvalid as error:
            found[strict] = None
            _check_sentence(error.reason)
    tolerant, strict_key = found[False], found[True]
    assert strict_key in {None, tolerant}, "quoted and bare are one key"
    if tolerant is not None:
        assert validate_key(tolerant) == tolerant
        quoted = '"' + tolerant.replace("\\", "\\\\").replace('"', '\\"') + '"'
        assert parse_key([quoted], strict=True) == tolerant


def _check_sentence(reason: str) -> None:
    assert reason.isascii(), "a sentence of ours, for the client"


def json_document(data: bytes) -> None:
    """A canonical form that white space does not change, or none; and what has one can be read."""
    canonical = canonical_json(data)
    if canonical is not None:
        assert canonical_json(b" \n" + data + b"\t") == canonical
        assert canonical_value(load_json_lossless(data))
        return
    try:
        value = load_json_lossless(data)
    except ValueError:
        return
    canonical_value(value)


def multipart(data: bytes) -> None:
    """The same digest however the body is cut into chunks, or none."""
    boundary, body = data[1 : 1 + data[0] % 71] if data else b"", data[71:]
    whole = multipart_digest([body], boundary)
    size = 1 + len(data) % 7
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    assert multipart_digest(pieces, boundary) == whole


def query(data: bytes) -> None:
    """What empty pieces do not change."""
    text = data.decode("latin-1")
    assert canonical_query(text) == canonical_query(f"&{text}&&")
    canonical_query(data.decode("utf-8", "surrogateescape"))


def request(data: bytes) -> None:
    """A fingerprint for anything that a server passes on."""
    head, _, body = data.partition(b"\0")
    content_type, _, rest = head.decode("latin-1").partition("\n")
    values = {"method": "POST", "path": rest, "query": rest, "body": RequestBody.from_bytes(body)}
    prints = {fingerprints((None,), content_type=content_type, headers=[("x", rest)], **values) for _ in range(2)}  # type: ignore[arg-type]
    assert len(prints) == 1


def record(data: bytes) -> None:
    """An item of the table, spoiled: readable or not, never an error, never a run of what is done."""
    item = _spoiled(_Bytes(data))
    read = record_of(item, _PK)
    if read.schema != SCHEMA_VERSION:
        assert read.status in Status
        step = decide(_ATTEMPT, read, min(_NOW, read.bound_until - 1))
        assert not isinstance(step, (Execute, Replay))
        return
    assert record_of(item_of(read), _PK) == read, "what is read is written as it was"
    response = read.response
    texts: list[str] = []
    if isinstance(response, KeptResponse):
        texts = [text for pair in response.headers for text in pair]
        unpack(response, max_bytes=_MOST_BYTES)
    elif isinstance(response, OmittedResponse):
        texts = [response.location or ""]
        assert ProblemType.recorded(response.reason).status == 409
    assert not any(_LINE_END.search(text) for text in texts)


class _Bytes:
    """Decisions of the fuzzer, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def number(self) -> int:
        return int.from_bytes(self.take(1))

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[self.number() % len(choices)]


def _spoiled(chance: _Bytes) -> object:
    """An item as we write one, with some of its values replaced or left out."""
    item: dict[str, Any] = json.loads(chance.one_of(_ITEMS), object_hook=_with_bytes)
    while chance.left > 0:
        place: Any = item
        for name in chance.one_of(_PLACES):
            inner = place.get(name) if isinstance(place, dict) else None
            place = inner if isinstance(inner, dict) else place
        if not isinstance(place, dict):
            return place
        name = chance.one_of(_NAMES)
        if chance.number() % 4:
            place[name] = _value(chance, 0)
        else:
            place.pop(name, None)
    return item


def _value(chance: _Bytes, depth: int) -> object:
    kind = chance.one_of(("S", "N", "B", "M", "L", "BOOL", "odd", "S", "N", "B"))
    if kind == "S":
        return {"S": chance.take(chance.number() % 12).decode("latin-1") or chance.one_of(_TEXTS)}
    if kind == "N":
        return {"N": chance.one_of(_NUMBERS) or chance.take(6).decode("latin-1")}
    if kind == "B":
        return {"B": chance.take(chance.number() % 40)}
    if kind == "M" and depth < 4:
        return {"M": {chance.one_of(_NAMES): _value(chance, depth + 1) for _ in range(chance.number() % 4)}}
    if kind == "L" and depth < 4:
        return {"L": [_value(chance, depth + 1) for _ in range(chance.number() % 5)]}
    return chance.one_of(_ODD)


def _with_bytes(value: dict[str, Any]) -> dict[str, Any]:
    if isinstance(value.get("B"), str):
        value["B"] = base64.b64decode(value["B"])
    return value


_PLACES = ((), (), ("response", "M"), ("response", "M", "chunks", "M"), ("response", "M", "omitted", "M"))
_NAMES = (
    "pk", "status", "version", "owner", "attempt", "fingerprint", "caller_digest", "created_at", "expires_at",
    "bound_until", "ttl", "schema", "response", "checkpoint", "headers", "encoding", "body", "chunks", "omitted",
    "sealed", "reason", "location", "count", "size", "sha256", "sk",
)  # fmt: skip
_ODD: tuple[Any, ...] = (
    {"BOOL": True},
    {"NULL": True},
    {},
    None,
    [],
    7,
    {"S": 1},
    {"N": 1},
    {"B": "text"},
    {"S": "a", "N": "1"},
)
_TEXTS = ("PENDING", "COMPLETED", "FAILED", "identity", "deflate", "a\r\nX: y", "outcome-unknown", "z" * 2000, "")
_NUMBERS = ("", "0", "1", "2", "200", "99", "1700000000", "1e3", "-1", "1E+125", "9" * 38, "NaN", "0.5", "1700086400.1")
_ITEMS = tuple(json.dumps(each) for each in (
    {
        "pk": {"S": _PK}, "status": {"S": "COMPLETED"}, "version": {"N": "2"}, "owner": {"S": "o"},
        "attempt": {"N": "1"}, "fingerprint": {"B": "Zg=="}, "created_at": {"N": "1700000000.0000000"},
        "expires_at": {"N": "1700086400"}, "bound_until": {"N": "1700086400"}, "ttl": {"N": "1700086460"},
        "schema": {"N": "1"},
        "response": {"M": {"status": {"N": "201"}, "headers": {"L": [{"S": "x"}, {"S": "y"}]},
                           "encoding": {"S": "identity"}, "body": {"B": "ZA=="}}},
    },
    {
        "pk": {"S": _PK}, "status": {"S": "COMPLETED"}, "version": {"N": "2"}, "owner": {"S": "o"},
        "attempt": {"N": "1"}, "fingerprint": {"B": "Zg=="}, "created_at": {"N": "1700000000.0000000"},
        "expires_at": {"N": "1700086400"}, "bound_until": {"N": "1700086400"}, "schema": {"N": "1"},
        "response": {"M": {"omitted": {"M": {"reason": {"S": "outcome-unknown"}, "location": {"S": "/1"}}}}},
    },
))  # fmt: skip


def answer(data: bytes) -> None:
    """A stored body, and what a cipher gave back: an answer within its bound, or none."""
    for encoding in ("deflate", "identity"):
        kept = KeptResponse(status=200, headers=(), encoding=encoding, body=data)
        unpacked = unpack(kept, max_bytes=_MOST_BYTES)
        assert unpacked is None or len(unpacked.body) <= max(_MOST_BYTES, len(data))
    assert isinstance(_read(data), (KeptResponse, OmittedResponse, Rejected))


def sealed(data: bytes) -> None:
    """Nothing opens that was not sealed."""
    for piece in (data, b"\x01\x01a" + data):
        try:
            _CIPHER.open(piece, b"")
        except Unauthentic:
            continue
        raise AssertionError("forged")


def wire(data: bytes) -> None:
    """An answer of DynamoDB to the lean transport: read, or one of the errors that the store knows."""
    for status in (200, 400, 503):
        try:
            decode("get_item", status, {}, data)
        except (ChecksumError, ClientError, ResponseParserError):
            continue


TARGETS: Mapping[str, Target] = {
    "key": key,
    "json": json_document,
    "multipart": multipart,
    "query": query,
    "request": request,
    "record": record,
    "answer": answer,
    "sealed": sealed,
    "wire": wire,
}


def seeds(target: str) -> list[bytes]:
    """Where to begin, where there is no corpus yet; the same ones each time."""
    chance = random.Random(target)  # noqa: S311 - not for secrets
    return [*_SEEDS.get(target, ()), chance.randbytes(80)]


_SEEDS: Mapping[str, tuple[bytes, ...]] = {
    "key": (b'"8e03978e-40d5"', b"abc", b'"a\\"b";v=1;w="x";d=%"%c3%a9";t=@1;b=:YQ==:;c=?1;e=1.5', b"\xff", b"a,b"),
    "json": (b'{"a":[1,-0,1.0,1e5,"\\u00e9",true,null]}', b"[" * 201, b'{"a":1,"a":2}', b'{"x":"\\u0000"}', b"NaN"),
    "multipart": (
        b"\x01b".ljust(71, b"-") + b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--b--\r\n',
        b"\x02bc".ljust(71, b"-") + b"--bc\r\nA: b\r\n\r\n1\r\n--bc\r\nA: b\r\nC: d\r\n\r\n\r\n--bcx\r\n--bc--",
    ),
    "query": (b"a=1&b=2&a=%C3%A9&c", b"a+b=%zz&&=&"),
    "request": (
        b"application/json\n/a?b=c\0{}",
        b"multipart/form-data; boundary=b\n/\0--b\r\n\r\n1\r\n--b--",
        b"application/vnd.x+json;charset=x\n\0[]",
    ),
    "record": (b"\0\0\1\1\0\0", b"\1\2\22\1\3\3", b"\0\2\12\0\3\20\0\1\1\5\2", bytes(range(60))),
    "answer": (
        b"\x78\x01\x4b\x04\x00\x00\x62\x00\x62",
        b"\x01\x00\xc8\x00\x00\x00\x01\x00\x00\x00\x08identitybody",
        b"\x03\x00\x00\x00\x01\x00\x00\x00\x01r",
    ),
    "wire": (
        b'{"Item":{"pk":{"S":"a"},"b":{"B":"AA=="},"m":{"M":{"l":{"L":[{"BS":["AA=="]}]}}}}}',
        b'{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"x"}',
        b'{"Responses":{"t":[{"b":{"B":"AA=="}}]},"UnprocessedKeys":{"t":{"Keys":[]}}}',
    ),
}  # fmt: skip

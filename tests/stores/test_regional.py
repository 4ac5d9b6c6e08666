"""Several regions: which of them a key belongs to, what happens when it is away, and what happens without homes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from moto import mock_aws

from idem_middleware import Engine, Event, EventKind, Lease, Options, RequestRefused
from idem_middleware.clock import CorrectedClock
from idem_middleware.errors import ConfigurationError, StoreMisconfigured, StoreUnavailable
from idem_middleware.keys import caller_partition, placed, short_digest
from idem_middleware.outcomes import function_identity
from idem_middleware.problems import ProblemType
from idem_middleware.records import Record, Status
from idem_middleware.stores import DynamoDBStore, Store, store_from_url
from idem_middleware.stores.base import Found, Written
from idem_middleware.stores.dynamodb import reconciling
from idem_middleware.stores.dynamodb.items import item_of
from idem_middleware.stores.dynamodb.reconciling import is_forked, reconcile
from idem_middleware.stores.regional import Homes, RegionalStore
from idem_middleware.testing.contract import ChunkedStoreContract, on_a_loop
from idem_middleware.transactions import Transaction
from tests.stores.doubles import ManualTime, answer, condition_failed, error, scripted_store, soon
from tests.stores.records import SMALL_ANSWER, after, new_pk, pending
from tests.stores.replication import LaggingCopier
from tests.support.dynamodb_local import DynamoDBLocal, locate
from tests.support.patience import patient

EUROPE, AMERICA, ASIA = "eu-central-1", "us-east-1", "ap-south-1"
REGIONS = (EUROPE, AMERICA)
KEYS = [f"{number:064x}" for number in range(3000)]


class TestHomes:
    """Rendezvous hashing."""

    def test_every_process_finds_the_same_home(self) -> None:
        """Whatever the order in which its regions are written; and for ever, since records outlive releases."""
        one, other = Homes((EUROPE, AMERICA, ASIA)), Homes((ASIA, EUROPE, AMERICA))
        assert [one.home_of(key) for key in KEYS] == [other.home_of(key) for key in KEYS]
        assert [one.home_of(key) for key in KEYS[:4]] == [AMERICA, ASIA, EUROPE, AMERICA]

    def test_keys_spread_evenly(self) -> None:
        """Each region gets its share."""
        homes = Homes((EUROPE, AMERICA, ASIA))
        shares = [sum(homes.home_of(key) == region for key in KEYS) for region in homes.regions]
        assert all(900 < share < 1100 for share in shares)

    def test_a_caller_has_one_home(self) -> None:
        """So that what a caller has used can be listed in one place."""
        homes = Homes((EUROPE, AMERICA, ASIA))
        partition = caller_partition("", "ann")
        assert len({homes.home_of(placed(key, partition)) for key in KEYS}) == 1
        assert len({homes.home_of(placed(KEYS[0], caller_partition("", str(n)))) for n in range(50)}) == 3

    def test_an_evacuated_region_takes_no_other_key_along(self) -> None:
        """Its own keys move, to both others; they come back."""
        homes = Homes((EUROPE, AMERICA, ASIA))
        before = {key: homes.home_of(key) for key in KEYS}
        homes.evacuate(EUROPE)
        moved = {key: homes.home_of(key) for key in KEYS}
        assert {key: home for key, home in moved.items() if before[key] != EUROPE} == {
            key: home for key, home in before.items() if home != EUROPE
        }
        assert {moved[key] for key in KEYS if before[key] == EUROPE} == {AMERICA, ASIA}
        homes.restore(EUROPE)
        assert {key: homes.home_of(key) for key in KEYS} == before

    @pytest.mark.parametrize(
        ("regions", "evacuated", "says"),
        [
            ((), (), "regions is empty"),
            ((EUROPE, EUROPE), (), "named twice"),
            ((EUROPE,), ("eu-centrl-1",), "none of eu-central-1"),
            ((EUROPE,), (EUROPE,), "no region is left"),
        ],
    )
    def test_wrong_regions_are_refused(self, regions: tuple[str, ...], evacuated: tuple[str, ...], says: str) -> None:
        """At start-up."""
        with pytest.raises(ConfigurationError, match=says):
            Homes(regions, evacuated)

    def test_the_last_region_stays(self) -> None:
        """A refusal leaves all as it was."""
        homes = Homes(REGIONS)
        homes.evacuate(EUROPE)
        with pytest.raises(ConfigurationError, match="no region is left"):
            homes.evacuate(AMERICA)
        assert homes.evacuated == {EUROPE}


@pytest.fixture
def aws() -> Iterator[None]:
    """Moto, in which each region has tables of its own."""
    with mock_aws():
        yield


class TestRegionalStoreOnMotoOnALoop(ChunkedStoreContract):
    """The contract, in two regions, asynchronously: in threads, and natively."""

    @pytest.fixture
    def store(self, moto_regional_store: RegionalStore) -> Iterator[Store]:
        """The class's own."""
        with on_a_loop(moto_regional_store) as looped:
            yield looped


class TestRegionalStoreOnMoto(ChunkedStoreContract):
    """The same, blocking."""

    @pytest.fixture
    def store(self, moto_regional_store: RegionalStore) -> Store:
        """The class's own."""
        return moto_regional_store


@pytest.mark.usefixtures("aws")
class TestRegionalStore:
    """Where records go."""

    def test_a_record_lies_in_its_home_alone(self) -> None:
        """Pieces of bodies, too."""
        store = RegionalStore("keys", REGIONS)
        store.create_table()
        claim = pending(new_pk())
        store.create(claim, soon(store))
        store.put_chunks(claim, [b"piece"], soon(store))
        for region, regional in store.stores.items():
            at_home = region == store.homes.home_of(claim.pk)
            assert isinstance(regional.load(claim.pk, soon(store)), Found) is at_home
            assert regional.get_chunks(claim, 1, soon(store)) == [b"piece" if at_home else None]

    def test_a_transaction_goes_to_the_home(self) -> None:
        """On both kinds of store; what it writes lies in that region."""
        store = RegionalStore("keys", REGIONS)
        store.create_table()
        assert store.is_transactional
        for number, looped in enumerate((False, True)):
            claim = pending(new_pk())
            note = {"Put": {"TableName": "keys", "Item": {"pk": {"S": f"note-{number}"}}}}
            transaction = Transaction((note,), f"token-{number}")
            if looped:
                with asyncio.Runner() as runner:
                    written = runner.run(store.to_async().transact(None, claim, transaction, soon(store)))
            else:
                written = store.transact(None, claim, transaction, soon(store))
            assert written == Written()
            home = store.home_of(claim.pk)
            assert home.load(claim.pk, soon(store)) == Found(claim)
            assert isinstance(home.load(f"note-{number}", soon(store)), Found)

    def test_a_caller_s_keys_are_listed_from_their_home(self) -> None:
        """One region has them all."""
        store = RegionalStore("keys", REGIONS, layout="caller")
        store.create_table()
        engine = Engine(store, Options())
        for number in range(3):
            engine.run_once(str(number), None, lambda lease: 1, caller="ann")
        assert len(list(store.keys_of("ann", limit=10))) == 3

    def test_its_regions_share_a_clock(self) -> None:
        """What one region's answers teach about this machine's clock holds for all."""
        store = RegionalStore("keys", REGIONS)
        assert {id(regional.clock) for regional in store.stores.values()} == {id(store.clock)}

    def test_its_twin_has_the_same_homes(self) -> None:
        """Renewals follow an evacuation."""
        store = RegionalStore("keys", REGIONS)
        store.twin().evacuate(EUROPE)
        assert store.homes.evacuated == {EUROPE}

    def test_all_regions_are_checked(self) -> None:
        """What is wrong is told for each; one that is evacuated is not asked."""
        store = RegionalStore("keys", REGIONS)
        store.stores[EUROPE].create_table()
        with pytest.raises(StoreMisconfigured, match=f"^{AMERICA}: .*no such table"):
            store.check()
        store.evacuate(AMERICA)
        store.check()
        assert list(store.describe()) == [EUROPE]

    def test_a_region_can_be_taken_back(self) -> None:
        """Its keys come home; while it is evacuated nothing is opened in it."""
        store = RegionalStore("keys", REGIONS)
        before = [store.home_of(key) for key in KEYS[:20]]
        opened: list[str] = []
        for region in REGIONS:
            store.stores[region].open = lambda region=region: opened.append(region)  # type: ignore[method-assign,misc]
        store.evacuate(EUROPE)
        assert {store.home_of(key) for key in KEYS[:20]} == {store.stores[AMERICA]}
        store.open()
        assert opened == [AMERICA]
        store.restore(EUROPE)
        assert [store.home_of(key) for key in KEYS[:20]] == before
        store.open()
        assert opened == [AMERICA, EUROPE, AMERICA]

    def test_it_shows_its_table_and_its_regions(self) -> None:
        """On threads and on loops."""
        store = RegionalStore("keys", REGIONS)
        assert repr(store) == "RegionalStore('keys', ['eu-central-1', 'us-east-1'])"
        assert repr(store.to_async()) == f"Async{store!r}"

    def test_an_evacuation_names_its_risk(self, caplog: pytest.LogCaptureFixture) -> None:
        """In the log of whoever does it, at the start as later."""
        with caplog.at_level(logging.WARNING, "idem_middleware"):
            store = RegionalStore("keys", (*REGIONS, ASIA), evacuated=[ASIA])
            store.evacuate(EUROPE)
        assert [("second time" in message, message.split()[2]) for message in caplog.messages] == [
            (True, ASIA),
            (True, EUROPE),
        ]

    def test_a_url_may_name_the_regions(self) -> None:
        """As it names the table."""
        store = store_from_url(f"dynamodb://keys?regions={EUROPE},{AMERICA}&evacuated={AMERICA}&transport=lean")
        assert isinstance(store, RegionalStore)
        assert store.homes.regions == REGIONS
        assert store.homes.evacuated == {AMERICA}

    @pytest.mark.parametrize(
        ("query", "says"),
        [
            (f"regions={EUROPE}&region={EUROPE}", "not both"),
            (f"evacuated={EUROPE}", "evacuated needs regions"),
            ("regions=,", "regions is empty"),
            (f"regions={EUROPE}&evacuated={ASIA}", "none of"),
        ],
    )
    def test_a_wrong_url_is_refused(self, query: str, says: str) -> None:
        """At start-up."""
        with pytest.raises(ConfigurationError, match=says):
            store_from_url(f"dynamodb://keys?{query}")

    def test_one_text_is_no_list(self) -> None:
        """Its letters are no regions."""
        with pytest.raises(ConfigurationError, match="must be a list of regions"):
            RegionalStore("keys", EUROPE)


class TestConflictsOfReplicatedWrites:
    """Strongly consistent global tables: a write that meets another region's is refused, and may be sent again."""

    CONFLICT = (
        "ReplicatedWriteConflictException",
        "One or more items in the request are being modified by a request in another Region.",
    )

    def test_a_claim_is_sent_again_and_finds_the_winner(self, time: ManualTime) -> None:
        """By the recorded shape of the answer; DynamoDB Local has no replicas."""
        winner = pending("1", owner="b" * 32)
        store, client, events = scripted_store(time, error(*self.CONFLICT), condition_failed(item_of(winner)))
        assert store.create(pending("1"), soon(store)) == Found(winner)
        assert client.operations == ["put_item", "put_item"]
        assert (events[0].kind, events[0].dynamo_error_code) == (
            EventKind.STORE_RETRIED,
            "ReplicatedWriteConflictException",
        )

    def test_a_completion_is_sent_again(self, time: ManualTime) -> None:
        """Nothing was written by the first try."""
        store, client, _ = scripted_store(time, error(*self.CONFLICT), answer())
        claim = pending("1")
        assert store.swap(claim, after(claim, status=Status.COMPLETED, response=SMALL_ANSWER), soon(store)) == Written()
        assert client.operations == ["update_item", "update_item"]

    def test_a_conflict_that_does_not_end_is_an_outage(self, time: ManualTime) -> None:
        """At the deadline."""
        store, _, _ = scripted_store(time, *[error(*self.CONFLICT)] * 50)
        with pytest.raises(StoreUnavailable) as raised:
            store.create(pending("1"), store.clock.monotonic() + 2.0)
        assert raised.value.code == "ReplicatedWriteConflictException"


CLAIM = pending("1" * 64, owner="a")
DONE = after(CLAIM, status=Status.COMPLETED, response=SMALL_ANSWER)
OTHER = replace(CLAIM, owner="b")


class TestForks:
    """Which pairs of records show two claims."""

    @pytest.mark.parametrize(
        "other",
        [OTHER, after(OTHER, status=Status.COMPLETED, response=SMALL_ANSWER), after(OTHER, status=Status.FAILED)],
        ids=["pending", "completed", "failed"],
    )
    def test_two_first_owners_are_a_fork(self, other: Record) -> None:
        """Whether one of them has ended already or not, and whoever is asked first."""
        assert is_forked(CLAIM, other)
        assert is_forked(other, CLAIM)

    def test_two_completions_are_a_fork(self) -> None:
        """Both ran, and both answered."""
        assert is_forked(DONE, replace(DONE, owner="b"))

    @pytest.mark.parametrize(
        "later",
        [
            DONE,
            after(CLAIM),
            after(CLAIM, owner="b", attempt=2),
            replace(CLAIM, owner="b", attempt=2, version=3, status=Status.COMPLETED),
            replace(CLAIM, owner="b", version=9),
        ],
        ids=["completed", "renewed", "taken over", "taken over and completed", "much later"],
    )
    def test_what_came_later_is_no_fork(self, later: Record) -> None:
        """One region lags behind the other."""
        assert not is_forked(CLAIM, later)

    def test_a_key_that_was_swept_and_used_again_is_no_fork(self) -> None:
        """The other region has not heard yet that the old record is gone."""
        reused = replace(OTHER, created_at=DONE.bound_until + 100, bound_until=DONE.bound_until + 90_000)
        assert not is_forked(DONE, reused)


@pytest.mark.usefixtures("aws")
class TestReconciling:
    """Comparing the owners of all keys, in two tables of moto."""

    def stores(self, *keys: tuple[str, Record, Record]) -> dict[str, DynamoDBStore]:
        """A table in each region, and under each key what each of them says."""
        made = {region: DynamoDBStore("keys", region=region) for region in REGIONS}
        for number, store in enumerate(made.values(), 1):
            store.create_table()
            for key in keys:
                record = key[number]
                assert isinstance(record, Record)
                store.create(replace(record, pk=key[0]), soon(store))
        return made

    def test_every_fork_is_told_of_however_many_pages_there_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """And nothing else."""
        monkeypatch.setattr(reconciling, "BATCH_KEYS", 2)
        keys = [(f"{n:064x}", CLAIM, OTHER if n % 2 else CLAIM) for n in range(5)]
        stores = self.stores(*keys)
        events: list[Event] = []
        pauses: list[float] = []
        admins = {region: store.admin() for region, store in stores.items()}
        for admin in admins.values():
            admin.sleep = pauses.append
        found = reconcile(admins, observers=[events.append], units_per_second=1.0)
        assert (found.compared, found.resume_from) == (5, None)
        assert sorted(one.key_digest for one in found.duplicates) == [short_digest(keys[n][0]) for n in (1, 3)]
        assert {one.regions for one in found.duplicates} == {REGIONS}
        assert sorted(event.key_digest or "" for event in events) == [short_digest(keys[n][0]) for n in (1, 3)]
        assert pauses
        assert found.units > 0

    def test_a_store_compares_the_regions_that_are_not_evacuated(self) -> None:
        """What has been given up says nothing any more."""
        self.stores((f"{1:064x}", CLAIM, OTHER))
        store = RegionalStore("keys", REGIONS)
        assert len(store.reconcile(units_per_second=1e6).duplicates) == 1
        store.evacuate(AMERICA)
        alone = store.reconcile(units_per_second=1e6)
        assert (alone.compared, alone.duplicates) == (1, ())

    def test_it_can_be_done_in_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each begins where the last one ended, and no key is left out."""
        monkeypatch.setattr(reconciling, "BATCH_KEYS", 2)
        stores = self.stores(*((f"{n:064x}", CLAIM, OTHER) for n in range(5)))
        admins = {region: store.admin() for region, store in stores.items()}
        found, compared, forked = reconcile(admins, max_seconds=1e-9, units_per_second=1e6), 0, 0
        for _ in range(9):
            compared, forked = compared + found.compared, forked + len(found.duplicates)
            if found.resume_from is None:
                break
            found = reconcile(admins, max_seconds=1e-9, units_per_second=1e6, resume_from=found.resume_from)
        assert (compared, forked) == (5, 5)

    def test_keys_that_a_region_throttles_are_asked_for_again(self) -> None:
        """What was not read is not "not there"."""
        stores = self.stores((f"{1:064x}", CLAIM, OTHER))
        pauses: list[float] = []
        admins = {region: store.admin() for region, store in stores.items()}
        real = admins[AMERICA].call
        throttled = iter([True, True, False])

        def call(operation: str, request: Any) -> Any:
            if operation == "batch_get_item" and next(throttled):
                return {"Responses": {}, "UnprocessedKeys": request["RequestItems"]}
            return real(operation, request)

        admins[AMERICA].call = call  # type: ignore[method-assign]
        admins[AMERICA].sleep = pauses.append
        assert len(reconcile(admins, units_per_second=1e6).duplicates) == 1
        assert pauses == [1.0, 1.0]


@pytest.fixture(scope="module")
def endpoints(dynamodb_local: str) -> Iterator[dict[str, str]]:
    """One program for each region."""
    with DynamoDBLocal(locate()) as second:
        yield {EUROPE: dynamodb_local, AMERICA: second.url}


@pytest.mark.thorough
@pytest.mark.dynamodb_local
class TestTwoRegionsThatReplicateLate:
    """Two DynamoDB Locals, and a copier that lags and lets the last writer win: a global table as it may be."""

    @pytest.fixture
    def copier(self, endpoints: dict[str, str]) -> LaggingCopier:
        """With a table of the test's own in both."""
        name = f"global-{uuid4().hex}"
        RegionalStore(name, REGIONS, **patient(endpoints=endpoints)).create_table()
        return LaggingCopier(name, endpoints)

    def unpinned(self, copier: LaggingCopier, endpoints: dict[str, str]) -> dict[str, DynamoDBStore]:
        """Each region's processes use their own region, as one would without thinking."""
        clock = CorrectedClock()
        return {
            region: DynamoDBStore(
                copier.table,
                **patient(endpoint=endpoints[region], session=copier.sessions[region], clock=clock),
            )
            for region in REGIONS
        }

    def pinned(self, copier: LaggingCopier, endpoints: dict[str, str]) -> RegionalStore:
        """What the processes of either region use."""
        store = RegionalStore(copier.table, REGIONS, endpoints=endpoints)
        store.stores = self.unpinned(copier, endpoints)
        return store

    def test_without_homes_a_request_runs_in_both_regions(
        self, copier: LaggingCopier, endpoints: dict[str, str]
    ) -> None:
        """And in the end one of its two answers is gone; the reconciliation finds it while it can be seen."""
        stores = self.unpinned(copier, endpoints)
        engines = {region: Engine(store, Options()) for region, store in stores.items()}
        answers = {region: engines[region].run_once("order-1", None, saying(region)) for region in REGIONS}
        assert answers == {EUROPE: EUROPE, AMERICA: AMERICA}  # it ran twice, and each client has another answer

        events: list[Event] = []
        admins = {region: store.admin() for region, store in stores.items()}
        found = reconcile(admins, observers=[events.append], units_per_second=1e6)
        assert (found.compared, len(found.duplicates)) == (1, 1)
        assert found.duplicates[0].regions == REGIONS
        assert [event.kind for event in events] == [EventKind.CROSS_REGION_DUPLICATE]
        assert events[0].key_digest == found.duplicates[0].key_digest

        assert copier.catch_up() == 1
        for engine in engines.values():  # the last writer's answer is everybody's now
            assert engine.run_once("order-1", None, saying("again")) == AMERICA
        assert reconcile(admins, units_per_second=1e6).duplicates == ()

    def test_with_homes_it_cannot(self, copier: LaggingCopier, endpoints: dict[str, str]) -> None:
        """However late the replication: both regions' processes, at once, for many keys; each ran once."""
        engines = [Engine(self.pinned(copier, endpoints), Options(wait_seconds=30)) for _ in REGIONS]
        runs: list[str] = []

        def send(engine: Engine, key: str) -> Any:
            def work(lease: Any) -> str:
                runs.append(key)
                return f"{key} of {lease.key_digest} by {id(engine)}"

            return engine.run_once(key, None, work)

        keys = [f"order-{number}" for number in range(20)]
        with ThreadPoolExecutor(8) as threads:
            sent = [(key, threads.submit(send, engine, key)) for key in keys for engine in engines]
            answers = [(key, future.result()) for key, future in sent]
        assert sorted(runs) == sorted(keys)
        assert len(set(answers)) == len(keys)
        assert copier.catch_up() == 0
        store = self.pinned(copier, endpoints)
        found = store.reconcile(units_per_second=1e6)
        assert (found.compared, found.duplicates) == (len(keys), ())
        assert {self.home(engines[0], key) for key in keys} == set(REGIONS)

    def test_a_record_that_lags_behind_is_no_duplicate(self, copier: LaggingCopier, endpoints: dict[str, str]) -> None:
        """The home is further than its replica."""
        store = self.pinned(copier, endpoints)
        claim = pending(new_pk())
        store.create(claim, soon(store))
        copier.catch_up()
        store.swap(claim, after(claim, owner="b" * 32, attempt=2), soon(store))
        assert store.reconcile(units_per_second=1e6).duplicates == ()

    def test_a_home_that_is_down_is_refused_and_nothing_runs(
        self, copier: LaggingCopier, endpoints: dict[str, str]
    ) -> None:
        """The other region's keys go on."""
        away = {**endpoints, EUROPE: "http://127.0.0.1:9"}  # nobody listens there
        store = RegionalStore(copier.table, REGIONS, **patient(endpoints=away))
        # An answer of "nobody is there" comes at once, so it is tried again until the deadline.
        store.stores[EUROPE].deadline_seconds = 0.2
        store.stores[AMERICA].deadline_seconds = 30.0
        engine = Engine(store, Options(lease_seconds=1))  # for as long it is tried to take the claims back
        outcomes: dict[str, set[object]] = {EUROPE: set(), AMERICA: set()}
        for number in range(8):
            name = name_of(engine, str(number))
            try:
                outcome: object = engine.run_once(str(number), None, lambda lease: "ran")
            except RequestRefused as refused:
                outcome = refused.problem.type
            outcomes[store.homes.home_of(name)].add(outcome)
        engine.drain(5.0)
        assert outcomes == {EUROPE: {ProblemType.STORE_UNAVAILABLE}, AMERICA: {"ran"}}

    def test_an_evacuation_goes_on_with_what_was_replicated(
        self, copier: LaggingCopier, endpoints: dict[str, str]
    ) -> None:
        """And runs again what was not: the risk that is taken."""
        store = self.pinned(copier, endpoints)
        engine = Engine(store, Options())
        keys = [str(n) for n in range(20) if self.home(engine, str(n)) == EUROPE]
        replicated, not_replicated = keys[0], keys[1]
        engine.run_once(replicated, None, lambda lease: "first")
        copier.catch_up()
        engine.run_once(not_replicated, None, lambda lease: "first")
        store.evacuate(EUROPE)
        assert engine.run_once(replicated, None, lambda lease: "again") == "first"
        assert engine.run_once(not_replicated, None, lambda lease: "again") == "again"

    def home(self, engine: Engine, key: str) -> str:
        """The region of a key of `run_once`."""
        assert isinstance(engine.store, RegionalStore)
        return engine.store.homes.home_of(name_of(engine, key))


def saying(word: str) -> Callable[[Lease | None], str]:
    """Work that gives this."""
    return lambda lease: word


def name_of(engine: Engine, key: str) -> str:
    """The record of a key of `run_once`."""
    return engine.runtime.attempt(function_identity(key, None, engine.options)).pk

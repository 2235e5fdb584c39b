"""The suite `delivery` at little effort: its sides, and the evaluation of their figures."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.delivery import backlog, suite
from benchmarks.delivery.latency import percentile
from benchmarks.delivery.receivers import bad_receivers
from benchmarks.delivery.retries import late_milliseconds
from benchmarks.delivery.service import deliver
from benchmarks.delivery.site import site_of
from benchmarks.delivery.stamps import stamping
from benchmarks.delivery.suite import names
from benchmarks.nginx import configuration
from benchmarks.report import table
from benchmarks.rows import Comparison, Effort, SecondReference, figure
from fw_actors.ops.site import open_site


def test_deliver_reaches_receiver_beside_bad_receivers(tmp_path: Path) -> None:
    with stamping() as receiver, bad_receivers() as (hanging, refusing, _):

        async def run() -> float:
            return await deliver(tmp_path, [receiver.url], 30, bad=[hanging, refusing])

        assert trio.run(run) > 0
        assert len(receiver.taken()) == 30


def test_backlog_fill_creates_requested_rows(tmp_path: Path) -> None:
    with bad_receivers() as (dead, *_):
        backlog.fill(tmp_path, 30, 10, dead)
    assert backlog.claim_milliseconds(tmp_path) > 0
    rows = trio.run(counts, tmp_path)
    assert rows == {"Sent": 15, "Failed": 15, "Queued": 10 + 1}  # and the model of all


async def counts(folder: Path) -> dict[str, int]:
    async with open_site(site_of(folder)) as site:
        return await site.read(
            "Administrator",
            lambda fw: {
                status: fw.count("Webhook Delivery", {"status": status})
                for status in ("Sent", "Failed", "Queued")
            },
        )


def test_late_milliseconds_measures_every_retry(tmp_path: Path) -> None:
    with stamping() as receiver:
        late = trio.run(late_milliseconds, tmp_path, receiver.url, 20)
    assert len(late) == 20
    assert late[0] >= -2  # start and length of an attempt are rounded to milliseconds


CHOICES = [  # arguments, part of the error
    (["delivery", "--row", "receivers_20"], "No row receivers_20: there are end_to_end, "),
    (["delivery", "--long", "--row", "fastest"], "retries_p99."),
    (["sender", "--row", "posts"], "--row chooses rows of the suite delivery"),
    (["--row", "end_to_end"], "--row chooses rows of the suite delivery"),
]


@pytest.mark.parametrize(("arguments", "said"), CHOICES)
def test_benchmark_command_refuses_unmeasurable_rows(arguments: list[str], said: str) -> None:
    completed = CliRunner().invoke(main, arguments)
    assert completed.exit_code == 2
    assert said in completed.output


def test_effort_wants_only_chosen_rows() -> None:
    some = Effort(1, 1, print, only=frozenset({"hanging", "backlog"}))
    assert [name for name in names(long=True) if some.wants(name)] == ["hanging", "backlog"]
    assert some.wants("end_to_end", "backlog")
    assert Effort(1, 1, print).wants("whatever")


def test_receiver_configuration_has_ports_and_optional_tls() -> None:
    plain = configuration(Path("/x"), 1000, [1001, 1002])
    assert "listen 127.0.0.1:1001;" in plain
    assert "listen 127.0.0.1:1002;" in plain
    assert "ssl" not in plain
    secure = configuration(Path("/x"), 1000, [1001], Path("/x/c.pem"))
    assert "listen 127.0.0.1:1001 ssl;" in secure
    assert "ssl_certificate_key /x/c.pem;" in secure


@pytest.mark.parametrize(("less", "ratio"), [(False, 0.5), (True, 2.0)])
def test_comparison_ratio_above_one_is_better(less: bool, ratio: float) -> None:
    row = Comparison("s", "n", "u", float, float, "r", less_is_better=less).row([2.0], [4.0])
    assert row.ratio == ratio


@pytest.mark.parametrize(("ours", "shown"), [(1.0, "0.50 < 0.80"), (2.0, "1.00 >= 0.80")])
def test_table_compares_the_ratio_with_the_aim(ours: float, shown: str) -> None:
    row = Comparison("s", "n", "u", float, float, "r", aim=0.8).row([ours], [2.0])
    assert row.reaches_aim is (">=" in shown)
    ratios = next(column for column in table([row]).columns if column.header == "ratio")
    assert list(ratios.cells) == [shown]


def test_second_reference_has_a_row_with_the_same_figures_of_ours() -> None:
    rounds = iter([3.0, 5.0, 4.0])
    second = SecondReference("n_to_plain", lambda: 8.0, "another")
    comparison = Comparison(
        "s", "n", "u", lambda: next(rounds), lambda: 2.0, "r", aim=0.5, second=second
    )
    first, other = comparison.measure_all(Effort(1, 3, print))
    assert (first.name, first.ours, first.ratio, first.aim) == ("n", 4.0, 2.0, 0.5)
    assert (other.name, other.ours, other.ratio, other.aim) == ("n_to_plain", 4.0, 0.5, None)
    assert other.reference_name == "another"


@pytest.mark.timeout(300)
def test_receivers_over_tls_are_compared_with_both_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "MANY_EVENTS", 20)
    some = Effort(20, 1, print, long=True, only=frozenset({"receivers_1_tls"}))
    over_tls, plain = suite.rows(some)
    assert (over_tls.name, plain.name) == ("receivers_1_tls", "receivers_1_tls_to_plain")
    assert over_tls.ours == plain.ours > 0
    assert plain.ratio == pytest.approx(plain.ours / plain.reference)


@pytest.mark.timeout(300)
def test_instructions_of_deliveries_are_counted_with_and_without_actors() -> None:
    """Where the machine lets a process count; without actors all is delivered and recorded too."""
    lines: list[str] = []
    rows = list(suite.rows(Effort(20, 1, lines.append, only=frozenset({"actor_instructions"}))))
    if not rows:
        assert "is left out: No counter" in lines[0]
        return
    [row] = rows
    assert min(row.ours, row.reference) > 10_000
    assert row.ratio == pytest.approx(row.reference / row.ours)


@pytest.mark.parametrize(("value", "shown"), [(12345.6, "12,346"), (3.04, "3.04"), (99.9, "99.90")])
def test_small_figures_keep_their_decimals(value: float, shown: str) -> None:
    assert figure(value) == shown


def test_percentile_is_element_of_values() -> None:
    values = [float(number) for number in range(200)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [0, 100, 198, 199]

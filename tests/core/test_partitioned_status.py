"""Every rule is judged for each partition."""

from situations import held
from worlds import XY, built, graph_of, judged, record, snapshot

from examlops_dagster.core.declarations import Upstream
from examlops_dagster.core.freshness import Manual
from examlops_dagster.core.mappings import all_keys, keys
from examlops_dagster.core.partitions import daily, hourly
from examlops_dagster.core.records import Node
from examlops_dagster.core.status import Judge
from examlops_dagster.core.verdicts import State


def test_every_rule_is_judged_for_each_partition():
    records = {
        Node("a", "x"): record(2),
        Node("a", "y"): record(),
        Node("b", "x"): record(of={Node("a", "x"): (1, "d1")}),
        Node("b", "y"): record(of={Node("a", "y"): (1, "d1")}),
    }
    verdicts = judged([built("a", space=XY), built("b", "a", space=XY)], records)
    assert verdicts[Node("b", "x")].why == ("upstream a[x] changed (1 → 2)",)
    assert verdicts[Node("b", "y")].state is State.FRESH


def test_a_hold_is_of_one_partition():
    declaration = built("a", space=XY)
    judge = Judge(graph_of(declaration), snapshot(), {})
    hold = held(fingerprint=judge.fingerprint(Node("a", "x")))
    verdicts = judged([declaration], holds={Node("a", "x"): hold})
    assert verdicts[Node("a", "x")].state is State.FAILED
    assert verdicts[Node("a", "y")].state is State.RUNNABLE


def test_many_partitions_of_one_upstream_are_one_reason():
    verdict = judged([built("a", space=XY), built("b", "a")])["b"]
    assert verdict.why == ("never materialized", "upstream a[x] is stale (+1 more)")


def test_a_partition_that_came_since_is_a_reason():
    records = {
        Node("a", "x"): record(),
        Node("a", "y"): record(),
        "b": record(of={Node("a", "x"): (1, "d1")}),
    }
    verdict = judged([built("a", space=XY), built("b", "a")], records)["b"]
    assert verdict.why == ("upstream a[y] not recorded at build",)


def test_a_partition_that_is_gone_is_a_reason():
    records = {
        Node("a", "x"): record(),
        Node("a", "y"): record(),
        "b": record(of={Node("a", k): (1, "d1") for k in "xyz"}),
    }
    verdict = judged([built("a", space=XY), built("b", "a")], records)["b"]
    assert verdict.why == ("upstream a[z] removed",)


def test_keys_that_were_never_built_are_waited_for_or_skipped():
    wait, skip = (
        Upstream("a", None, all_keys("a", missing=missing)) for missing in ("wait", "skip")
    )
    a = built("a", space=XY, freshness=Manual)
    records = {Node("a", "x"): record(), "b": record(of={Node("a", "x"): (1, "d1")})}
    assert judged([a, built("b", wait)], records)["b"].state is State.WAITING_FOR_UPSTREAM
    assert judged([a, built("b", skip)], records)["b"].state is State.FRESH


def test_a_skipped_key_that_was_built_since_is_a_reason():
    skip = Upstream("a", None, all_keys("a", missing="skip"))
    records = {
        Node("a", "x"): record(),
        Node("a", "y"): record(),
        "b": record(of={Node("a", "x"): (1, "d1")}),
    }
    verdict = judged([built("a", space=XY), built("b", skip)], records)["b"]
    assert verdict.why == ("upstream a[y] not recorded at build",)


def test_a_key_that_does_not_exist_is_waited_for():
    edge = Upstream("a", None, keys("a", lambda key: [key, "nowhere"]))
    records = {Node("a", k): record() for k in "xy"}
    verdict = judged([built("a", space=XY), built("b", edge, space=XY)], records)[Node("b", "x")]
    assert verdict.state is State.WAITING_FOR_UPSTREAM
    assert verdict.note == "upstream a[nowhere] does not exist"


def test_two_mappings_of_one_upstream_are_both_judged():
    one = Upstream("a", None, keys("a", lambda key: ["x"]))
    other = Upstream("a", "value", keys("a", lambda key: ["y"]))
    records = {Node("a", "x"): record(2), Node("a", "y"): record(2)}
    reads = {Node("a", k): (1, "d1") for k in "xy"}
    verdict = judged(
        [built("a", space=XY), built("b", one, other)], {**records, "b": record(of=reads)}
    )
    assert verdict["b"].why == ("upstream a[x] changed (1 → 2) (+1 more)",)


def test_a_day_is_stale_by_its_own_hours_alone():
    hours, days = {"hour": hourly("2026-01-03")}, {"day": daily("2026-01-03")}
    declarations = [built("a", space=hours), built("b", "a", space=days)]
    ran = [f"2026-01-0{d}-{h:02}:00" for d in (3, 4) for h in range(24)]
    ran += [f"2026-01-05-{h:02}:00" for h in range(12)]
    records = {Node("a", hour): record() for hour in ran}
    for day in ("2026-01-03", "2026-01-04"):
        of = {Node("a", f"{day}-{h:02}:00"): (1, "d1") for h in range(24)}
        records[Node("b", day)] = record(of=of)
    records[Node("a", "2026-01-04-07:00")] = record(2)
    verdicts = judged(declarations, records)
    assert verdicts[Node("b", "2026-01-03")].state is State.FRESH
    assert verdicts[Node("b", "2026-01-04")].why == (
        "upstream a[2026-01-04-07:00] changed (1 → 2)",
    )


def test_an_hour_of_today_waits_for_its_day():
    hours, days = {"hour": hourly("2026-01-05")}, {"day": daily("2026-01-04")}
    declarations = [built("a", space=days), built("b", "a", space=hours)]
    verdict = judged(declarations, {Node("a", "2026-01-04"): record()})[
        Node("b", "2026-01-05-03:00")
    ]
    assert verdict.note == "upstream a[2026-01-05] does not exist"

"""Policy and audit on every way to a build, on a real Dagster instance."""

import json

import pytest
from homes import names_of, run_program
from ticks import FORMS, Automation

from examlops_dagster.core.records import Node
from examlops_dagster.dagster_bridge.run import run_due_in
from examlops_dagster.errors import PolicyError, UsageError
from examlops_dagster.governance.governor import require

DENY_FEATURES = """\
policies:
  - name: frozen
    action: asset_materialize
    when: asset == 'features'
    effect: deny
    reason: quarter end
"""
APPROVE_MODEL = DENY_FEATURES.replace("'features'", "'model'").replace("deny", "require_approval")
APPROVE_ALL = APPROVE_MODEL.replace("asset == 'model'", "asset in ('features', 'model')")
DENY_MODEL = DENY_FEATURES.replace("'features'", "'model'")
REASON = "features: matched policy rule 'frozen' → deny (quarter end)"


@pytest.fixture(autouse=True)
def actors(monkeypatch, tmp_path):
    monkeypatch.setenv("EXAMLOPS_ACTOR", "alice")
    monkeypatch.setenv("EXAMLOPS_CONFIG_DIR", str(tmp_path / "config"))


def policy(home, text):
    home.write("policy.yaml", text)


def rows(home, action=None, modules=()):
    project = home.project(*modules)
    project.governor.settle()
    found = [r for r in project.governor.audit.rows() if action in (None, r.action)]
    assert project.governor.audit.verify().ok
    project.close()
    return found


def grant(home, monkeypatch, *, actor="bob"):
    """Let somebody else grant all that waits; give the ids."""
    project = home.project()
    waiting = [a for a in project.governor.approvals.listed() if a.state.value == "pending"]
    monkeypatch.setenv("EXAMLOPS_ACTOR", actor)
    for approval in waiting:
        project.governor.settle_approval(approval.id, grant=True)
    monkeypatch.setenv("EXAMLOPS_ACTOR", "alice")
    project.close()
    return [approval.id for approval in waiting]


def test_one_denied_ancestor_lets_nothing_be_built(home, chain):
    policy(home, DENY_FEATURES)
    report = home.exa(chain, "model")
    assert not report.ok
    assert [str(each) for each in report.blocked] == [f"Blocked by policy: {REASON}"]
    assert report.rebuilt == report.runs == []
    assert home.versions(chain) == {"PM100": 0, "features": 0, "model": 0}
    [row] = rows(home, "asset_materialize_denied")
    assert (row.actor, row.assets) == ("alice", ("PM100", "features", "model"))
    assert row.details["denied"] == ["features"]
    assert row.details["targets"] == ["model"]


def test_what_is_not_rebuilt_is_not_asked_for(home, chain):
    assert home.exa(chain, "features").ok
    policy(home, DENY_FEATURES)
    assert names_of(home.exa(chain, "model").rebuilt) == ["model"]


def test_policy_sees_the_orchestrator_and_the_resources_of_the_request(home, chain):
    policy(
        home,
        """\
        policies:
          - when: orchestrator == 'scheduler' and get(resources, 'gpus', 0) > 2
            effect: deny
        """,
    )
    asked = {"orchestrator": "scheduler", "resources": {"gpus": 4}}
    assert [r.asset for r in home.exa(chain, "model", **asked).blocked] == ["model"]
    assert home.exa(chain, "model").ok


def test_a_file_with_a_mistake_blocks_every_build_and_says_where(home, chain):
    policy(home, "policies:\n  - effect: denny\n")
    [refusal] = {str(each) for each in home.exa(chain, "model").blocked}
    where = f"{home.folder}/policy.yaml:2"
    assert refusal.startswith(f"Blocked by policy: {where}: rule 1: effect: unknown effect 'denny'")
    assert not home.click(chain, "features").success
    assert home.builds("features") == []


def test_a_request_is_audited_with_all_that_it_did(home, chain):
    home.exa(chain, "model")
    [row] = rows(home, "asset_materialize")
    told = row.details
    assert (row.actor, row.assets) == ("alice", ("PM100", "features", "model"))
    assert told["rebuilt"] == ["PM100", "features", "model"]
    assert (told["targets"], told["source"], told["decision"]) == (["model"], "exa", "allow")
    assert told["builds"]["features"]["orchestrator"] == "local"
    assert told["builds"]["features"]["run"] == told["runs"][0]
    home.exa(chain, "model")
    assert rows(home, "asset_materialize")[-1].details["skipped"] == ["PM100", "features", "model"]


BROKEN = """\
from examlops_dagster import asset


@asset("good", timeout_seconds=None)
def good():
    return 1


@asset("bad", inputs={"good": good}, timeout_seconds=None)
def bad(good):
    raise ValueError("broken on purpose")
"""


def test_a_failure_is_audited_beside_the_request(home):
    module = home.module(BROKEN)
    assert not home.exa(module, "bad").ok
    failed, asked = rows(home)
    assert (failed.action, failed.assets) == ("asset_build_failed", ("bad",))
    assert failed.details["error"] == "ValueError: broken on purpose"
    assert failed.details["request"] == asked.details["request"]
    assert asked.details["rebuilt"] == ["good"]
    assert asked.details["failed"] == {"bad": "ValueError: broken on purpose"}


def test_a_click_is_denied_for_all_that_it_selects(home, chain):
    policy(home, DENY_MODEL)
    result = home.click(chain, "features", "model")
    assert not result.success
    assert home.builds("features") == home.builds("model") == []
    [row] = rows(home, "asset_materialize_denied")
    assert row.details["source"] == "ui"
    assert row.details["run"] == result.run_id
    failures = [e for e in result.all_events if e.is_step_failure]
    said = failures[0].step_failure_data.user_failure_data.description
    assert said.startswith("Blocked by policy: model: matched policy rule 'frozen'")
    assert home.click(chain, "features").success


def test_a_click_is_audited_step_by_step_without_exa(home, chain):
    result = home.click(chain, "features", "model")
    assert result.success
    adopted, *built = rows(home)[1:]  # after the declaration
    assert (adopted.action, adopted.assets) == ("asset_recorded", ("PM100",))
    assert [(r.action, r.actor, r.assets) for r in built] == [
        ("asset_materialize", "alice", ("features",)),
        ("asset_materialize", "alice", ("model",)),
    ]
    assert built[0].details["run"] == result.run_id
    assert built[0].details["source"] == "ui"
    assert built[0].details["rebuilt"] == ["features"]


@pytest.mark.parametrize(
    "tags",
    [
        {"examlops/slice": "true"},
        {"examlops/slice": "true", "examlops/process": "host:1:2.0", "examlops/actor": "root"},
    ],
)
def test_tags_do_not_let_a_run_pass(home, chain, tags):
    policy(home, DENY_FEATURES)
    assert not home.click(chain, "features", tags=tags).success
    assert home.builds("features") == []


def test_a_run_cannot_borrow_what_another_was_allowed(home, chain):
    report = home.exa(chain, "model")
    policy(home, DENY_FEATURES)
    tags = home.instance.get_run_by_id(report.runs[0]).tags
    borrowed = {k: v for k, v in tags.items() if k.startswith("examlops/")}
    assert not home.click(chain, "features", tags=borrowed).success


def test_a_dagster_command_is_denied(home):
    home.write(
        "pipeline.py",
        """\
        from examlops_dagster import asset, build_definitions

        @asset
        def features():
            with open("called", "w"):
                pass

        @asset
        def other():
            with open("called", "w"):
                pass

        defs = build_definitions(["pipeline"])
        """,
    )
    policy(home, DENY_FEATURES)
    done = run_program(
        home.folder,
        "dagster",
        *("asset", "materialize", "--select", "*", "-m", "pipeline"),
        code=1,
        DAGSTER_HOME=str(home.folder),
    )
    assert f"Blocked by policy: {REASON}" in done.stderr + done.stdout
    assert not (home.folder / "called").exists()
    [row] = rows(home)  # one, though each step has a process of its own
    assert (row.action, row.assets) == ("asset_materialize_denied", ("features", "other"))


PARTITIONED = """\
from examlops_dagster import asset, partitions


@asset(partitions={"letter": partitions(["a", "b", "c"])}, timeout_seconds=None)
def features(letter):
    return letter
"""


def test_a_partition_of_a_backfill_is_denied(home):
    module = home.module(PARTITIONED)
    policy(home, DENY_FEATURES)
    tags = {"dagster/backfill": "abcdefgh"}
    assert not home.click(module, "features", partition="a", tags=tags).success
    assert home.builds("features") == []
    policy(home, "policies: []")
    assert home.click(module, "features", partition="a", tags=tags).success
    [row] = rows(home, "asset_materialize")
    assert row.details["rebuilt"] == ["features[a]"]


def test_an_approved_request_is_carried_out_once(home, chain, monkeypatch):
    policy(home, APPROVE_MODEL)
    [waiting] = home.exa(chain, "model").blocked
    assert str(waiting) == f"Waiting for approval {waiting.approval}"
    assert str(home.exa(chain, "model").blocked[0]) == str(waiting)
    assert home.builds("features") == []
    assert grant(home, monkeypatch) == [waiting.approval]
    assert names_of(home.exa(chain, "model").rebuilt) == ["PM100", "features", "model"]
    [again] = home.exa(chain, "model", force=True).blocked
    assert again.approval not in ("", waiting.approval)


def test_a_grant_is_for_the_fingerprint_that_was_asked_for(home, chain, monkeypatch):
    home.exa(chain, "model")
    policy(home, APPROVE_MODEL)
    home.advance("PM100", modules=chain)
    [first] = home.exa(chain, "model").blocked
    grant(home, monkeypatch)
    home.advance("PM100", modules=chain)
    [second] = home.exa(chain, "model").blocked
    assert second.approval != first.approval


def test_a_grant_is_for_the_actor_who_asked(home, chain, monkeypatch):
    policy(home, APPROVE_MODEL)
    [first] = home.exa(chain, "model").blocked
    grant(home, monkeypatch)
    monkeypatch.setenv("EXAMLOPS_ACTOR", "carol")
    [other] = home.exa(chain, "model").blocked
    assert other.approval != first.approval


def test_what_failed_within_a_granted_slice_is_tried_again_under_the_grant(home, monkeypatch):
    module = home.module(BROKEN)
    policy(home, APPROVE_MODEL.replace("'model'", "'bad'"))
    assert home.exa(module, "bad").blocked
    grant(home, monkeypatch)
    assert [str(f.node) for f in home.exa(module, "bad").failed] == ["bad"]
    report = home.exa(module, "bad")
    assert (report.blocked, [str(f.node) for f in report.failed]) == ([], ["bad"])


def test_a_grant_lets_the_click_pass_that_asked_for_it(home, chain, monkeypatch):
    policy(home, APPROVE_MODEL)
    assert not home.click(chain, "features", "model").success
    assert not home.click(chain, "features", "model").success
    assert len(grant(home, monkeypatch)) == 1
    assert home.click(chain, "features", "model").success


def test_a_refusal_is_told_to_who_asks_again(home, chain, monkeypatch):
    policy(home, APPROVE_MODEL)
    [waiting] = home.exa(chain, "model").blocked
    project = home.project()
    monkeypatch.setenv("EXAMLOPS_ACTOR", "bob")
    project.governor.settle_approval(waiting.approval, grant=False, comment="not now")
    monkeypatch.setenv("EXAMLOPS_ACTOR", "alice")
    [refused] = home.exa(chain, "model").blocked
    assert str(refused) == (
        f"Blocked by policy: approval {waiting.approval} was refused by bob: not now"
    )


def test_policy_says_who_may_grant(home, chain, monkeypatch):
    policy(
        home,
        APPROVE_MODEL + "  - {action: approve, when: actor != 'boss', effect: deny, name: boss}\n",
    )
    home.exa(chain, "model")
    with pytest.raises(PolicyError, match="matched policy rule 'boss'"):
        grant(home, monkeypatch)
    assert grant(home, monkeypatch, actor="boss")
    assert home.exa(chain, "model").ok


def test_what_is_due_is_built_but_for_what_policy_denies(home):
    module = home.module(
        """\
        from examlops_dagster import asset

        @asset(timeout_seconds=None)
        def one():
            return 1

        @asset(timeout_seconds=None)
        def features():
            return 1

        @asset(deps=[features], timeout_seconds=None)
        def below(features):
            return 1
        """
    )
    policy(home, DENY_FEATURES)
    project = home.project(module)
    report = run_due_in(project)
    assert names_of(report.rebuilt) == ["one"]
    assert [each.asset for each in report.blocked] == ["features"]
    assert not report.ok


@pytest.mark.parametrize("form", FORMS)
class TestAutomation:
    def test_it_requests_nothing_that_is_denied_and_says_so_once(self, home, chain, form):
        policy(home, DENY_FEATURES)
        automation = Automation(home, chain, form)
        assert automation.requested() == automation.requested() == []
        verdict = home.status(chain)["features"]
        assert verdict.state.value == "stale_waiting_for_request"
        assert verdict.why[0] == "never materialized"
        assert verdict.why[-1] == f"Blocked by policy: {REASON}"
        assert home.status(chain)["model"].state.value == "stale_waiting_for_upstream"
        [row] = rows(home, "asset_materialize_denied")
        assert (row.actor, row.details["source"]) == ("automation", "automation")
        home.advance("PM100", modules=chain)
        automation.requested()
        assert len(rows(home, "asset_materialize_denied")) == 2

    def test_it_asks_once_and_goes_on_by_itself_after_the_grant(
        self, home, chain, form, monkeypatch
    ):
        policy(home, APPROVE_MODEL)
        automation = Automation(home, chain, form)
        assert all(result.success for result in automation.tick())
        assert automation.tick() == automation.tick() == []
        assert automation.states()["features"] == "fresh"
        [approval] = grant(home, monkeypatch)
        assert approval
        [result] = automation.tick()
        assert result.success
        assert automation.states() == {"PM100": "fresh", "features": "fresh", "model": "fresh"}
        assert automation.tick() == []

    def test_it_asks_once_for_all_of_a_slice_and_builds_it_in_one_run(
        self, home, chain, form, monkeypatch
    ):
        policy(home, APPROVE_ALL)
        automation = Automation(home, chain, form)
        assert automation.tick() == automation.tick() == []
        [approval] = home.project().governor.approvals.listed()
        assert names_of(approval.nodes) == ["PM100", "features", "model"]
        grant(home, monkeypatch)
        assert automation.requested() == [["features", "model"]]
        [result] = automation.tick()
        assert result.success
        assert automation.states() == {"PM100": "fresh", "features": "fresh", "model": "fresh"}
        assert automation.tick() == []
        home.advance("PM100", modules=chain)
        automation.tick()
        states = [a.state.value for a in home.project().governor.approvals.listed()]
        assert states == ["pending", "used"]

    def test_its_runs_are_audited_as_its_own(self, home, chain, form):
        policy(home, "policies: []")
        automation = Automation(home, chain, form)
        while automation.tick():
            pass
        built = rows(home, "asset_materialize")
        assert {row.actor for row in built} == {"automation"}
        assert sorted(asset for row in built for asset in row.assets) == ["features", "model"]

    def test_what_it_decided_is_no_pass_for_others(self, home, chain, form):
        policy(
            home,
            "policies: [{action: asset_materialize, when: source == 'ui', effect: deny}]",
        )
        automation = Automation(home, chain, form)
        while automation.tick():
            pass
        assert automation.states()["model"] == "fresh"
        assert not home.click(chain, "features", tags={"examlops/slice": "true"}).success


def test_other_actions_ask_and_are_recorded(home, chain):
    home.advance("PM100", modules=chain)
    policy(
        home,
        """\
        policies:
          - {action: [source-changed, declare, undeclare], effect: deny, name: never}
          - {action: snapshot, when: kind == 'dataset', effect: require_approval}
        """,
    )
    for act in (
        lambda: home.advance("PM100", modules=chain),
        lambda: home.declare("other"),
        lambda: home.project().undeclare("PM100"),
    ):
        with pytest.raises(PolicyError, match=r"Blocked by policy: .*matched policy rule 'never'"):
            act()
    project = home.project()
    with pytest.raises(PolicyError, match=r"Waiting for approval [0-9a-f]{8}"):
        require(project, "snapshot", "PM100", kind="dataset")
    require(project, "snapshot", "PM100", kind="feature")
    assert [row.action for row in rows(home)] == [
        "declare",
        "source_changed",
        "source_changed_denied",
        "declare_denied",
        "undeclare_denied",
        "approval_requested",
    ]
    assert rows(home)[1].details["version"] == 1


def test_what_others_made_is_reported_and_adopted_on_the_record(home, chain):
    project = home.project(chain)
    project.advance("PM100")
    project.report("features", "theirs")
    assert project.adopt("features") == [Node("features")]
    project.undeclare("PM100")
    with pytest.raises(UsageError, match="was not declared from the command line"):
        project.undeclare("PM100")
    assert [row.action for row in rows(home)] == [
        "declare",
        "source_changed",
        "report",
        "adopt",
        "undeclare",
    ]


def test_the_log_is_written_out_as_lines_of_json(home, chain):
    home.exa(chain, "model")
    done = run_program(home.folder, "exa", "audit", "export", DAGSTER_HOME=str(home.folder))
    assert [json.loads(line)["action"] for line in done.stdout.splitlines()] == [
        "declare",
        "asset_materialize",
    ]

import os

import pytest

from examlops_dagster.governance.decision import Action, Effect, Question
from examlops_dagster.governance.policy import load_policy
from examlops_dagster.home import Home

GOOD = """\
approvals:
  valid_hours: 2
  self_grant: true
policies:
  # GPUs are shared
  - name: many-gpus
    action: asset_materialize
    when: "get(resources, 'gpus', 0) > 2"
    effect: require_approval
    reason: ask ops
  - action: [declare, source-changed]
    when: actor == 'guest'
    effect: deny
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("EXAMLOPS_CONFIG_DIR", str(tmp_path / "config"))
    (tmp_path / "home").mkdir()
    return Home(tmp_path / "home", True, os.environ)


def wrote(home, text, name="policy.yaml"):
    (home.folder / name).write_text(text)
    return load_policy(home)


def asks(action=Action.MATERIALIZE, asset="model", actor="alice", **more):
    return Question(action, asset, actor, **more)


def test_no_file_is_no_policy(home):
    assert load_policy(home) is None


def test_a_file_says_who_may_do_what(home):
    policy = wrote(home, GOOD)
    assert policy.problem == ""
    assert policy.valid_for.total_seconds() == 7200
    assert policy.self_grant
    assert policy.decide(asks(resources={"gpus": 1})).effect is Effect.ALLOW
    found = policy.decide(asks(resources={"gpus": 4}))
    assert (found.effect, found.rule) == (Effect.REQUIRE_APPROVAL, "many-gpus")
    assert policy.decide(asks(Action.DECLARE, actor="guest")).effect is Effect.DENY
    assert policy.decide(asks(Action.SOURCE_CHANGED, actor="guest")).effect is Effect.DENY
    assert policy.decide(asks(actor="guest")).effect is Effect.ALLOW


def test_the_home_goes_before_the_folder_of_the_host(home, tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "policy.yaml").write_text("policies: [{effect: deny}]\n")
    assert load_policy(home).decide(asks()).effect is Effect.DENY
    assert wrote(home, "policies: []").decide(asks()).effect is Effect.ALLOW


def test_a_changed_file_is_read_anew(home):
    assert wrote(home, "policies: []").decide(asks()).effect is Effect.ALLOW
    assert wrote(home, "policies: [{effect: deny}]").decide(asks()).effect is Effect.DENY


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("policies:\n  - effect: denny\n", 2, "rule 1: effect: unknown effect 'denny' → allow"),
        ("policies:\n  - effect: [deny\n", 3, "expected"),
        ("policies:\n\t- effect: deny\n", 2, "cannot start any token"),
        ("policies:\n- effect: deny\n  wen: kind == 'x'\n", 3, "rule 1: unknown key 'wen' → effec"),
        ("polices: []\n", 1, ""),
        ("policies:\n- name: x\n", 2, "rule 1: the key 'effect' is missing"),
        (
            "policies:\n- effect: deny\n- effect: deny\n  when: kind ==\n",
            4,
            "rule 2: when: the condition 'kind ==' cannot be used: invalid syntax",
        ),
        ("policies:\n- effect: deny\n  when: kinds == 'x'\n", 3, "unknown name 'kinds'"),
        ("policies:\n- effect: deny\n  when: true\n", 3, "put the condition in quotes"),
        ("policies:\n- effect: deny\n  action: build\n", 3, "unknown action 'build' → asset_mat"),
        ("policies:\n- effect: deny\n  action: []\n", 3, "it names no action"),
        ("policies:\n- effect: deny\n  effect: allow\n", 3, "the key 'effect' stands twice"),
        ("policies: []\napprovals: {valid_hours: -1}\n", 2, "valid_hours"),
        ("policies: []\napprovals:\n  valid_hours: .nan\n", 3, "valid_hours"),
        ("policies: []\napprovals:\n  self_grant: 'yes'\n", 3, "self_grant"),
        ("policies: {}\n", 1, "list"),
        ("- effect: deny\n", 1, ""),
        ("policies:\n- deny\n", 2, "rule 1"),
        ("policies:\n- effect: !!python/object:os.system x\n", 2, "could not determine"),
        ("policies: []\n---\npolicies: []\n", 2, "another document"),
    ],
)
def test_a_mistake_denies_everything_and_is_told_with_its_line(home, text, line, why):
    policy = wrote(home, text)
    found = policy.decide(asks())
    assert found.effect is Effect.DENY
    assert found.reason.startswith(f"{home.folder}/policy.yaml:{line}: "), found.reason
    assert why in found.reason


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"# nothing\n", "it is empty"),
        (b"policies: [{effect: deny, reason: '\xff'}]", "not UTF-8"),
        (b"policies: [{effect: deny, reason: \x00}]", "#x0000"),
        (b"policies: &a [*a]", ""),
        (b"[" * 5000, ""),
        (b"x" * 1_000_001, "more than 1000000"),
        (b"policies: [{effect: deny, name: 2026-13-45}]", ""),
    ],
    ids=["empty", "comment", "latin", "nul", "cycle", "deep", "huge", "date"],
)
def test_what_cannot_be_read_denies_everything(home, data, why):
    (home.folder / "policy.yaml").write_bytes(data)
    found = load_policy(home).decide(asks())
    assert found.effect is Effect.DENY
    assert "policy.yaml" in found.reason
    assert why in found.reason


def test_a_folder_or_a_broken_link_in_its_place_denies_everything(home):
    path = home.folder / "policy.yaml"
    path.mkdir()
    assert "it is not a file" in load_policy(home).decide(asks()).reason
    path.rmdir()
    path.symlink_to(home.folder / "nowhere")
    assert "not there" in load_policy(home).decide(asks()).reason


def test_a_link_to_itself_denies_everything(home):
    path = home.folder / "policy.yaml"
    path.symlink_to(path)
    assert "policy.yaml" in load_policy(home).decide(asks()).reason

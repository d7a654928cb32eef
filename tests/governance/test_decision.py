from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examlops_dagster.governance.decision import (
    Action,
    Condition,
    ConditionError,
    Decision,
    Effect,
    Question,
    Rule,
    decide,
)

MODEL = Question(
    Action.MATERIALIZE,
    "models/jpcp",
    "alice",
    "exa",
    "model",
    "scheduler",
    {"gpus": 4, "time": "2:00:00"},
    "training",
    ("team:ml",),
    {"tier": "gold"},
)


def rule(effect=Effect.DENY, when=None, number=1, actions=None, **more):
    condition = None if when is None else Condition(when)
    more.setdefault("name", "")
    return Rule(
        number,
        f"policy.yaml:{number}",
        effect,
        frozenset(actions or Action),
        condition,
        **more,
    )


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("action == 'asset_materialize'", True),
        ("asset == 'models/jpcp' and kind == 'model'", True),
        ("matches(asset, 'models/*')", True),
        ("matches(asset, 'raw/*')", False),
        ("kind in ['model', 'report']", True),
        ("kind not in ('model', 'report')", False),
        ("orchestrator == 'scheduler'", True),
        ("get(resources, 'gpus', 0) > 2", True),
        ("resources['gpus'] > 4", False),
        ("get(resources, 'nodes', 1) * get(resources, 'gpus', 0) >= 4", True),
        ("get(resources, 'mem') is None", True),
        ("actor in {'alice', 'bob'}", True),
        ("not (source == 'automation')", True),
        ("'team:ml' in owners and len(owners) == 1", True),
        ("tags['tier'] == 'gold' if 'tier' in tags else False", True),
        ("lower(group) == 'training'", True),
        ("True", True),
        ("False", False),
    ],
)
def test_a_condition_sees_what_is_asked(when, holds):
    assert Condition(when).holds(MODEL) is holds


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("asset ==", "invalid syntax"),
        ("", "invalid syntax"),
        ("asset = 'x'", "invalid syntax"),
        ("asset.upper() == 'X'", "a call is"),
        ("resources.gpus > 1", "attribute"),
        ("().__class__", "attribute"),
        ("[x for x in owners]", "ListComp"),
        ("9 ** 9 ** 9 > 1", "Pow"),
        ("(lambda: 1)()", "a call is"),
        ("colour == 'red'", "unknown name 'colour'"),
        ("open('x') == 1", "unknown function 'open'"),
        ("rand() > 0.5", "unknown function 'rand'"),
        ("get(key='x') == 1", "a call is"),
        ("f'{asset}' == 'x'", "JoinedStr"),
        ("asset; kind", "invalid syntax"),
        ("(asset := 'x') == 'x'", "NamedExpr"),
        ("asset == '" + "x" * 3000 + "'", "characters"),
        ("(" * 500 + "1" + ")" * 500, None),
    ],
)
def test_what_is_no_condition_is_refused_before_it_is_used(when, why):
    with pytest.raises(ConditionError, match=why):
        Condition(when)


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("resources['nodes'] > 1", "KeyError"),
        ("get(resources, 'time') > 2", "TypeError"),
        ("1 / 0 == 1", "ZeroDivisionError"),
        ("get(resources, 'gpus', 0)", "gives 4"),
        ("'yes'", "gives 'yes'"),
        ("int(asset) == 1", "ValueError"),
        ("'x' * 200000 == 'x'", "IterableTooLong"),
    ],
)
def test_a_condition_that_cannot_be_evaluated_denies_and_says_where(when, why):
    found = decide([rule(Effect.ALLOW, when, number=3)], MODEL)
    assert found.effect is Effect.DENY
    assert "policy.yaml:3: rule 3" in found.reason
    assert "models/jpcp" in found.reason
    assert why in found.reason


def test_the_first_rule_that_matches_decides():
    rules = [
        rule(Effect.DENY, "actor == 'mallory'"),
        rule(Effect.ALLOW, "actor == 'alice'", number=2, name="friends"),
        rule(Effect.DENY, number=3),
    ]
    assert decide(rules, MODEL).rule == "friends"
    assert decide(rules[2:], MODEL) == Decision(
        Effect.DENY, "rule 3", "models/jpcp: matched policy rule 'rule 3' → deny"
    )


def test_a_rule_is_about_the_actions_that_it_names():
    rules = [rule(actions=[Action.DECLARE])]
    assert decide(rules, MODEL).effect is Effect.ALLOW


def test_the_words_of_who_wrote_the_rule_are_told():
    found = decide([rule(reason="ask the ops team", name="ops")], MODEL)
    assert found.reason == "models/jpcp: matched policy rule 'ops' → deny (ask the ops team)"


def test_no_rule_allows():
    assert decide([], MODEL) == Decision(Effect.ALLOW)


def test_an_action_is_named_with_hyphens_too():
    assert Action.named("source-changed") is Action.SOURCE_CHANGED
    with pytest.raises(ValueError, match="nosuch"):
        Action.named("nosuch")


CONDITIONS = st.sampled_from(
    [None, "True", "False", "actor == 'alice'", "kind == 'model'", "get(resources, 'gpus', 0) > 2"]
)
RULES = st.lists(
    st.builds(
        lambda effect, when, actions: rule(effect, when, actions=actions),
        st.sampled_from(Effect),
        CONDITIONS,
        st.sets(st.sampled_from(Action), min_size=1),
    ),
    max_size=6,
)
QUESTIONS = st.builds(
    Question,
    st.sampled_from(Action),
    st.text(min_size=1),
    st.sampled_from(["alice", "bob"]),
    kind=st.sampled_from(["model", "dataset"]),
    resources=st.dictionaries(st.just("gpus"), st.integers(0, 8)),
)


@given(RULES, QUESTIONS)
def test_a_decision_is_that_of_the_first_rule_that_would_decide_alone(rules, question):
    alone = [
        r
        for r in rules
        if question.action in r.actions and (r.when is None or r.when.holds(question))
    ]
    expected = alone[0].effect if alone else Effect.ALLOW
    assert decide(rules, question).effect is expected


@given(RULES, RULES, QUESTIONS)
def test_rules_behind_one_that_matches_everything_say_nothing(before, behind, question):
    rules = [*before, rule(Effect.DENY, name="last")]
    assert decide([*rules, *behind], question) == decide(rules, question)


@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_is_refused(text):
    try:
        condition = Condition(text)
    except ConditionError:
        return
    with suppress(ConditionError):
        assert condition.holds(MODEL) in (True, False)

"""What a list of rules says to a question: no file, no clock, no database."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any


class Effect(Enum):
    """What a rule does to what it matches; the value is what the file says."""

    ALLOW = "allow"
    DENY = "deny"
    REQUIRE_APPROVAL = "require_approval"


class Action(Enum):
    """What policy is asked about; the value is what the file and the audit log say."""

    MATERIALIZE = "asset_materialize"
    DECLARE = "declare"
    UNDECLARE = "undeclare"
    SOURCE_CHANGED = "source_changed"
    REPORT = "report"
    EMIT = "emit"
    ADOPT = "adopt"
    SNAPSHOT = "snapshot"
    CANCEL = "cancel"
    APPROVE = "approve"

    @classmethod
    def named(cls, text: str) -> Action:
        """Give an action by its name, a hyphen as good as an underscore."""
        return cls(text.strip().replace("-", "_"))


EVERY_ACTION = frozenset(Action)


@dataclass(frozen=True)
class Question:
    """One thing that somebody wants to do; the fields are the names that conditions know.

    Attributes
    ----------
    source
        How it was asked: exa, python, ui or automation.
    resources
        What a job of the asset would ask for.
    """

    action: Action
    asset: str
    actor: str
    source: str = "exa"
    kind: str = ""
    orchestrator: str = ""
    resources: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, Any]:
        """The fields by name, as a condition sees them."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in found.items()}
        return {**plain, "action": self.action.value}


NAMES = frozenset(f.name for f in fields(Question))


class ConditionError(ValueError):
    """A condition that cannot be parsed, or cannot be evaluated for a question."""


class Condition:
    """A ``when`` expression: comparisons, arithmetic and a few functions over a question.

    Parameters
    ----------
    text
        An expression of simpleeval's. Names: the fields of `Question`. Functions: ``get(resources,
        "gpus", 0)``, ``matches(asset, "raw/*")``, ``len``, ``lower``, ``int``, ``float``, ``str``.
        There is no attribute access, no comprehension and no power.

    Raises
    ------
    ConditionError
        If it is not such an expression.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > MAX_LENGTH:
            raise ConditionError(f"it has {len(text)} characters, {MAX_LENGTH} are allowed")
        try:
            parsed = ast.parse(text.strip(), mode="eval")
        except SyntaxError as error:
            raise ConditionError(f"{error.msg}") from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise ConditionError(str(error) or type(error).__name__) from error
        _check(parsed)
        self._parsed = parsed.body

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"

    def holds(self, question: Question) -> bool:
        """Tell whether it is true of a question.

        Raises
        ------
        ConditionError
            If it cannot be evaluated, or gives neither True nor False.
        """
        from simpleeval import EvalWithCompoundTypes  # noqa: PLC0415 - only where there are rules

        names = {**question.names, "True": True, "False": False, "None": None}
        evaluator = EvalWithCompoundTypes(functions=dict(_FUNCTIONS), names=names)
        try:
            found = evaluator.eval(self.text, previously_parsed=self._parsed)
        except Exception as error:
            words = str(error).strip().splitlines() or [""]
            raise ConditionError(f"{type(error).__name__}: {words[0]}") from error
        if not isinstance(found, bool):
            raise ConditionError(f"it gives {found!r}, neither True nor False")
        return found


@dataclass(frozen=True)
class Rule:
    """One entry of the file.

    Attributes
    ----------
    number
        Counted from 1.
    where
        ``file:line``.
    actions
        What it is about.
    when
        None matches everything.
    reason
        Words of who wrote the rule, for who meets it.
    """

    number: int
    where: str
    effect: Effect
    actions: frozenset[Action] = EVERY_ACTION
    when: Condition | None = None
    name: str = ""
    reason: str = ""

    @property
    def label(self) -> str:
        """How messages call the rule."""
        return self.name or f"rule {self.number}"


@dataclass(frozen=True)
class Decision:
    """What the rules say.

    Attributes
    ----------
    rule
        Label of the rule that matched; empty where none did.
    reason
        In words, for the one who asked; empty for a plain allow.
    """

    effect: Effect
    rule: str = ""
    reason: str = ""


def decide(rules: Sequence[Rule], question: Question) -> Decision:
    """Give what the first rule that matches says; allow where none does.

    A rule whose condition cannot be evaluated denies: nobody knows what it would have said.
    """
    for rule in rules:
        if question.action not in rule.actions:
            continue
        try:
            if rule.when is not None and not rule.when.holds(question):
                continue
        except ConditionError as error:
            text = rule.when.text if rule.when is not None else ""
            return Decision(
                Effect.DENY,
                rule.label,
                f"{rule.where}: rule {rule.number}: the condition {text!r} cannot be evaluated "
                f"for {question.asset} ({error})",
            )
        words = f"{question.asset}: matched policy rule {rule.label!r} → {rule.effect.value}"
        if rule.reason:
            words = f"{words} ({rule.reason})"
        return Decision(rule.effect, rule.label, words)
    return Decision(Effect.ALLOW)


MAX_LENGTH = 2_000

_FUNCTIONS = {
    "get": lambda found, key, default=None: found.get(key, default),
    "matches": lambda text, pattern: fnmatchcase(str(text), str(pattern)),
    "len": len,
    "lower": lambda text: str(text).lower(),
    "int": int,
    "float": float,
    "str": str,
}

_ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Compare, ast.Eq,
    ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot, ast.Call,
    ast.Name, ast.Load, ast.Constant, ast.Subscript, ast.List, ast.Tuple, ast.Set, ast.IfExp,
)  # fmt: skip
"""A condition has these parts and no others: no attribute, comprehension, lambda or power."""


def _check(parsed: ast.Expression) -> None:
    called = {id(n.func) for n in ast.walk(parsed) if isinstance(n, ast.Call)}
    for node in ast.walk(parsed):
        if not isinstance(node, _ALLOWED):
            part = type(node).__name__
            words = {"Attribute": "an attribute (use get(resources, 'gpus', 0))"}.get(part, part)
            raise ConditionError(f"{words} is not allowed in a condition")
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.keywords:
                raise ConditionError("a call is FUNCTION(VALUE, ...)")
            if node.func.id not in _FUNCTIONS:
                raise ConditionError(
                    f"unknown function {node.func.id!r}; known: {', '.join(sorted(_FUNCTIONS))}"
                )
        elif isinstance(node, ast.Name) and id(node) not in called and node.id not in NAMES:
            raise ConditionError(f"unknown name {node.id!r}; known: {', '.join(sorted(NAMES))}")

"""Reads ``policy.yaml``; every mistake in it is told with its file and line.

Imported only where there is a file, since it needs pydantic and yaml.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from examlops_dagster.governance.decision import (
    EVERY_ACTION,
    Action,
    Condition,
    ConditionError,
    Effect,
    Rule,
)

DEFAULT_VALID_HOURS = 24.0


def _actions(value: object) -> frozenset[Action]:
    named = value if isinstance(value, list) else [value]
    found: set[Action] = set()
    for each in named:
        if each == "*":
            found |= EVERY_ACTION
            continue
        try:
            found.add(Action.named(str(each)))
        except ValueError:
            known = ", ".join(a.value for a in Action)
            raise ValueError(f"unknown action {each!r} → {known}, or '*'") from None
    if not found:
        raise ValueError("it names no action → '*' is every one")
    return frozenset(found)


def _effect(value: object) -> Effect:
    try:
        return Effect(value)
    except ValueError:
        known = ", ".join(e.value for e in Effect)
        raise ValueError(f"unknown effect {value!r} → {known}") from None


def _condition(value: object) -> Condition | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text → put the condition in quotes")  # noqa: TRY004
    try:
        return Condition(value)
    except ConditionError as error:
        raise ValueError(f"the condition {value!r} cannot be used: {error}") from error


class RuleModel(BaseModel):
    """One entry of ``policies``."""

    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)

    effect: Annotated[Effect, BeforeValidator(_effect)]
    action: Annotated[frozenset[Action], BeforeValidator(_actions)] = EVERY_ACTION
    when: Annotated[Condition | None, BeforeValidator(_condition)] = None
    name: str = ""
    reason: str = ""


class ApprovalsModel(BaseModel):
    """What holds for approvals.

    Attributes
    ----------
    valid_hours
        How long a grant, or a refusal, holds.
    self_grant
        Whether who asked may grant it.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    valid_hours: float = Field(DEFAULT_VALID_HOURS, gt=0, le=24 * 366, allow_inf_nan=False)
    self_grant: bool = False


class PolicyModel(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    policies: list[RuleModel]
    approvals: ApprovalsModel = Field(default_factory=lambda: ApprovalsModel.model_validate({}))


class PolicyFileError(Exception):
    """The file cannot be used; says where and why."""


def parse_policy(path: Path, text: str) -> tuple[tuple[Rule, ...], ApprovalsModel]:
    """Read the text of a file.

    Raises
    ------
    PolicyFileError
        With the place of the first mistake, and how many more there are.
    """
    root, data = _composed(path, text)
    try:
        model = PolicyModel.model_validate(data)
    except ValidationError as error:
        raise PolicyFileError(_told(path, root, error)) from error
    lines = [_line(root, ("policies", n)) for n in range(len(model.policies))]
    rules = tuple(
        Rule(number, f"{path}:{line}", each.effect, each.action, each.when, each.name, each.reason)
        for number, (each, line) in enumerate(zip(model.policies, lines, strict=True), start=1)
    )
    return rules, model.approvals


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _composed(path: Path, text: str) -> tuple[yaml.Node, Any]:
    """Give a document as nodes, which know their lines, and as plain data."""
    try:
        root: yaml.Node | None = _Loader(text).get_single_node()
        if root is not None:
            _refuse_doubles(path, root)
            return root, _Loader("").construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise PolicyFileError(f"{path}:{line}: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise PolicyFileError(f"{path}: {str(error).splitlines()[0]}") from error
    raise PolicyFileError(f"{path}: it is empty → write policies: [] to allow everything")


def _refuse_doubles(path: Path, root: yaml.Node) -> None:
    """Refuse a key that stands twice in one place, of which YAML takes the last."""
    left, seen = [root], {id(root)}
    while left:
        node = left.pop()
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                if str(key.value) in keys:
                    line = key.start_mark.line + 1
                    raise PolicyFileError(f"{path}:{line}: the key {key.value!r} stands twice")
                keys.add(str(key.value))
                inner.append(value)
        elif isinstance(node, yaml.SequenceNode):
            inner = node.value
        for each in inner:
            if id(each) not in seen:  # an anchor may be used twice, or inside itself
                seen.add(id(each))
                left.append(each)


def _line(root: yaml.Node, place: Sequence[str | int]) -> int:
    """Give the line of what stands at a place, as far as it can be followed."""
    node, line = root, root.start_mark.line + 1
    for part in place:
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == part), None)
            if found is None:
                break
            node, line = found[1], found[0].start_mark.line + 1
        else:
            break
    return line


def _told(path: Path, root: yaml.Node, error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    first = problems[0]
    place = first["loc"]
    words = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        words = f"unknown key {place[-1]!r} → {_known(place)}"
    elif first["type"] == "missing":
        words = f"the key {place[-1]!r} is missing"
    elif place and isinstance(place[-1], str):
        words = f"{place[-1]}: {words}"
    rule = f"rule {place[1] + 1}: " if len(place) > 1 and isinstance(place[1], int) else ""
    more = f" (+{len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{path}:{_line(root, place)}: {rule}{words}{more}"


def _known(place: tuple[Any, ...]) -> str:
    model: type[BaseModel] = PolicyModel
    if len(place) > 1:
        model = RuleModel if place[0] == "policies" else ApprovalsModel
    return ", ".join(model.model_fields)

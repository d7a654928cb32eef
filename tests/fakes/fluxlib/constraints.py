"""Constraints: the query syntax of RFC 35 as --requires takes it, and which nodes it leaves."""

import re

from fluxlib.instance import HOSTS

OPERATORS = {"host": "hostlist", "hosts": "hostlist", "hostlist": "hostlist",
             "rank": "ranks", "ranks": "ranks", "properties": "properties"}  # fmt: skip
_TOKEN = re.compile(r"\s*(?:(-)|(\(|\))|(&{1,2}|and\b)|(\|{1,2}|or\b)|(not\b)|([^()|&\s\"']+))")


class ConstraintError(Exception):
    """It cannot be read (``is_syntax``), or names what is not there."""

    def __init__(self, text, *, is_syntax=False):
        self.is_syntax = is_syntax
        super().__init__(text)


def parse(query):
    """Give the object of RFC 31."""
    words, text = [], query.rstrip()
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise ConstraintError(f"Illegal character {text[place]!r}", is_syntax=True)
        place = found.end()
        kind = ("-", "(", "and", "or", "not", "term")[found.lastindex - 1]
        kind = found[2] or kind
        words.append((kind, found[found.lastindex], found.start(found.lastindex)))
    parser = _Parser(query, words)
    made = parser.either()
    parser.end()
    _check(made)
    return made


def eligible(constraint):
    """Give the ranks of the nodes that a constraint leaves; all without one."""
    return [rank for rank in range(len(HOSTS)) if constraint is None or _holds(constraint, rank)]


class _Parser:
    def __init__(self, query, words):
        self.query = query
        self.words = words

    def either(self):
        found = self.all()
        while self._takes("or"):
            found = {"or": [*found.get("or", [found]), self.all()]}
        return found

    def all(self):
        found = self.one()
        while self._takes("and") or (self.words and self.words[0][0] not in (")", "or")):
            found = {"and": [*found.get("and", [found]), self.one()]}
        return found

    def one(self):
        if not self.words:
            raise ConstraintError(f"Unexpected end of input in '{self.query}'", is_syntax=True)
        kind, word, place = self.words.pop(0)
        if kind == "not":
            return {"not": [self.one()]}
        if kind == "(" and self.words and self.words[0][0] != ")":
            found = self.either()
            if not self._takes(")"):
                raise ConstraintError(f"Unclosed parenthesis in position {place}", is_syntax=True)
            return found
        if kind == "-" and self.words and self.words[0][0] == "term":
            return {"not": [_term(self.words.pop(0)[1])]}
        if kind == "term":
            return _term(word)
        kind, word, place = self.words[0] if self.words else (kind, word, place)
        raise ConstraintError(f"Invalid token '{word}' at position {place}", is_syntax=True)

    def end(self):
        if self.words:
            _, word, place = self.words[0]
            raise ConstraintError(f"Invalid token '{word}' at position {place}", is_syntax=True)

    def _takes(self, kind):
        if self.words and self.words[0][0] == kind:
            self.words.pop(0)
            return True
        return False


def _term(word):
    operator, colon, value = word.partition(":")
    if not colon:
        return {"properties": word.split(",")}
    if not value:
        raise ConstraintError(f"Missing argument to token '{word}'", is_syntax=True)
    return {OPERATORS.get(operator, operator): [value]}


def _check(constraint):
    for operator, values in constraint.items():
        if operator in ("and", "or", "not"):
            for value in values:
                _check(value)
        elif operator == "hostlist":
            for host in _hosts(values[0]):
                if host not in HOSTS:
                    raise ConstraintError(
                        f"host constraint contains invalid hosts: host '{host}' not found"
                    )
        elif operator not in OPERATORS.values():
            raise ConstraintError(f"unknown constraint operator '{operator}'")


def _holds(constraint, rank):
    ((operator, values),) = constraint.items()
    if operator == "not":
        return not _holds(values[0], rank)
    if operator in ("and", "or"):
        return (all if operator == "and" else any)(_holds(value, rank) for value in values)
    if operator == "hostlist":
        return HOSTS[rank] in _hosts(values[0])
    if operator == "ranks":
        return rank in numbers(values[0])
    return all(name.startswith("^") for name in values)  # no node has a property here


def _hosts(text):
    """Expand ``node[1-2],other``."""
    found = []
    for stem, idset in re.findall(r"([^,\[\]]+)(?:\[([\d,-]+)\])?", text):
        found += [f"{stem}{number}" for number in numbers(idset)] if idset else [stem]
    return found


def numbers(text):
    """Expand ``0-2,5``."""
    found = []
    for part in text.strip("[]").split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found

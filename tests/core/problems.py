"""The problems that a graph is refused for."""

import pytest
from worlds import graph_of

from examlops_dagster.core.declared import declaration_of
from examlops_dagster.errors import DefinitionError


def problems_of(*declarations):
    with pytest.raises(DefinitionError) as caught:
        graph_of(*declarations)
    return list(map(str, caught.value.problems))


def only_problem(*declarations):
    [problem] = problems_of(*declarations)
    return problem


def declared(decorator, function, **arguments):
    return declaration_of(decorator("x", **arguments)(function))

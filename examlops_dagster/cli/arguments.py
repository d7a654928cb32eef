"""Arguments and options that several commands about assets take.

Annotations are real here, not strings: typer reads them.
"""

from contextlib import redirect_stderr
from io import StringIO
from typing import Annotated, Any

import typer

from examlops_dagster.cli.common import options


def complete_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the names of assets; options are only parsed then, so no callback kept them."""
    module: list[str] | None = None
    file: str | None = None
    level: Any = context
    while level is not None:
        module = module or level.params.get("module")
        file = file or level.params.get("file")
        level = level.parent
    try:
        with redirect_stderr(StringIO()), options(context, module, file).project() as project:
            names = list(project.graph.declarations)
    except Exception:  # noqa: BLE001 - completion must stay silent
        return []
    return [name for name in names if name.startswith(incomplete)]


NameArgument = Annotated[
    str, typer.Argument(help="Name of an asset.", autocompletion=complete_names)
]
OptionalName = Annotated[
    str | None,
    typer.Argument(help="Name of an asset; all by default.", autocompletion=complete_names),
]
PartitionOption = Annotated[
    str | None,
    typer.Option(
        "--partition", help="A key of a partitioned asset, FIRST...LAST, or DIMENSION=KEY,..."
    ),
]
ResourcesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--resources",
        metavar="KEY=VALUE",
        help="What the jobs of the assets named ask for this once, over their own: "
        "gpus=4,time=2:00:00 (or repeat the option), slurm.OPTION=VALUE. What they are made from "
        "keeps its own, and nothing becomes stale by it.",
    ),
]
OrchestratorOption = Annotated[
    str | None,
    typer.Option(
        help="local, scheduler, prefect, or of an installed package; by default what the asset "
        "names, else EXAMLOPS_ASSET_ORCHESTRATOR.",
    ),
]
InProcessOption = Annotated[
    bool, typer.Option("--in-process", help="Call the functions here, without their time limits.")
]

"""Records revisions of datasets and applies feature views, in a project; also for scripts."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from examlops_dagster.catalog.backends import Backend, MinioBackend, backend_named
from examlops_dagster.catalog.content import Content, Meter, read_content
from examlops_dagster.catalog.hash_cache import HashCache
from examlops_dagster.catalog.revisions import Facts, Revision
from examlops_dagster.catalog.views import VIEW_KIND, FeatureView
from examlops_dagster.clock import utc_now
from examlops_dagster.core.declarations import DEFAULT_KIND, Declaration, NodeType, closed_over
from examlops_dagster.core.records import Node
from examlops_dagster.errors import UsageError
from examlops_dagster.governance.decision import Action
from examlops_dagster.home import cache_folder, find_home
from examlops_dagster.loading import ModuleLike
from examlops_dagster.project import Project
from examlops_dagster.project.scripts import changing

EXTERNAL = "external"
"""Backend of a revision that somebody else keeps and names."""

PYTHON = "python"
"""How policy knows that a script asks."""

NO_REVISIONS = frozenset({"", "unknown", "none", "null", "latest"})
"""What programs say that could not find out."""

CLAIM_SECONDS = 10.0
"""How long to wait for another process that changes the same asset."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recorded:
    """What recording a revision came to.

    Attributes
    ----------
    revision
        As it is in platform.db now.
    new
        Whether it was not the asset's content before.
    notes
        What a person should know of the content.
    held_up
        Why the asset has not advanced yet; empty when it has.
    """

    revision: Revision
    new: bool
    notes: tuple[str, ...] = ()
    held_up: str = ""


def snapshot(
    project: Project,
    dataset: str,
    path: str | os.PathLike[str],
    backend: Backend,
    meter: Meter | None = None,
) -> Recorded:
    """Hash the files of a dataset, keep them, and record the revision.

    Raises
    ------
    DatasetError
        If there is nothing, it changes meanwhile, or it cannot be kept.
    UsageError
        If the name cannot have revisions, the path is none of this machine, or the backend lacks a
        setting.
    """
    undeclared = see_recordable(project, dataset)
    root = Path(path)
    if "://" in os.fspath(path):
        raise UsageError(f"--path {path} is no path of this machine")
    if not os.path.lexists(root):
        raise UsageError(f"--path {path} does not exist")
    _ask_policy(project, dataset)
    backend.check()
    content = read_content(root, HashCache(cache_folder().parent / "hashes", root), meter)
    uri = backend.keep(dataset, root, content, meter)
    return _record(
        project,
        dataset,
        content.revision,
        backend=backend.name,
        uri=_as_text(uri),
        content=content,
        declare=undeclared,
    )


def record(
    project: Project, dataset: str, revision: str, *, uri: str = "", facts: Facts | None = None
) -> Recorded:
    """Record a revision that somebody else made and names.

    Raises
    ------
    UsageError
        If the name cannot have revisions, or the revision says nothing.
    """
    if revision.strip().lower() in NO_REVISIONS:
        raise UsageError(
            f"{revision!r} identifies no content of {dataset} → give a hash or a commit, or nothing "
            "(mark_source_changed says that a source is new)"
        )
    undeclared = see_recordable(project, dataset)
    _ask_policy(project, dataset)
    return _record(
        project, dataset, revision, backend=EXTERNAL, uri=uri, facts=facts, declare=undeclared
    )


def checkout(
    project: Project, text: str, folder: Path, meter: Meter | None = None
) -> tuple[Revision, Content]:
    """Write the files of a kept revision into a folder, and see that they have their hashes.

    Parameters
    ----------
    text
        See `Revisions.find`.
    folder
        Missing, empty, or what an interrupted checkout of the same revision has left.
    """
    named = project.revisions.find(text)
    same = [r for r in project.revisions.of(named.dataset) if r.revision == named.revision]
    kept = next((r for r in reversed(same) if r.backend == MinioBackend.name), named)
    if kept.backend == EXTERNAL:
        raise UsageError(f"{kept} is kept by others ({kept.uri or 'place not recorded'})")
    backend = (
        MinioBackend.at(kept.uri)
        if kept.backend == MinioBackend.name
        else backend_named(kept.backend)
    )
    return kept, backend.fetch(kept.dataset, kept.revision, folder, meter)


def record_dataset_revision(
    dataset: str,
    revision: str | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    backend: str = "local",
    uri: str = "",
    row_count: int | None = None,
    byte_count: int | None = None,
    schema_hash: str | None = None,
    modules: Iterable[ModuleLike] = (),
) -> Revision:
    """Record that a dataset has a content now; its asset advances if that is another one.

    The revision is the durable fact: where the asset cannot advance at once, that is logged, and
    done at the next snapshot or status.

    Parameters
    ----------
    dataset
        Name of the asset; declared if nobody has.
    revision
        What identifies the content, such as a commit of a data versioning system. Without it
        ``path`` is hashed.
    path
        Folder or file with the content.
    backend
        local or minio: where the files at ``path`` are kept.
    uri
        Where others keep ``revision``.
    row_count, byte_count, schema_hash
        What is known of ``revision``.
    modules
        Where assets are declared; the configured ones by default.

    Raises
    ------
    UsageError
        If not exactly one of ``revision`` and ``path`` is given, or the name has a production
        function.
    DatasetError
        If there is nothing at ``path``, or it cannot be kept.
    """
    if (revision is None) == (path is None):
        raise UsageError("give either revision= or path=")
    with changing(modules) as project:
        if path is not None:
            kept = backend_named(backend, environment=project.home.environment)
            recorded = snapshot(project, dataset, path, kept)
        else:
            facts = Facts(None, byte_count, row_count, schema_hash)
            recorded = record(project, dataset, revision or "", uri=uri, facts=facts)
    for note in (*recorded.notes, recorded.held_up):
        if note:
            logger.warning("%s: %s", dataset, note)
    return recorded.revision


def apply_view(view: FeatureView) -> bool:
    """Register a feature view and declare its asset, with its source upstream.

    Applied again it changes nothing; with another source the edge moves. What code states of an
    asset of that name wins. Where the asset cannot be declared the view is registered all the same,
    that is logged, and declared as soon as it can be.

    Parameters
    ----------
    view
        Name, entity, features and source.

    Returns
    -------
    bool
        Whether anything was new.
    """
    project = Project(find_home(), reading=False)
    try:
        project.make_home()
        project.governor.require(Action.DECLARE, view.name, source=PYTHON, kind=VIEW_KIND)
        new = project.views.put(view, now=utc_now(), actor=project.home.actor)
        if new:
            project.declare_view(view)
        return new
    finally:
        project.close()


def see_recordable(project: Project, dataset: str) -> bool:
    """See that a name can have revisions, and tell whether nobody has declared it yet.

    Looks at the declarations one by one, not at the graph: code that names the dataset as upstream
    is in error until the dataset is declared.
    """
    found = [d for d in _declarations(project) if d.name == dataset]
    for declaration in found:
        if declaration.function is not None:
            raise UsageError(
                f"{dataset} has a production function, whose results are its contents "
                f"→ exa assets materialize {dataset}"
            )
        if declaration.partitions is not None:
            raise UsageError(
                f"{dataset} has partitions, and a revision is of all of them "
                f"→ exa assets report {dataset} --partition KEY --data-version V"
            )
        if declaration.node_type is NodeType.ALIAS:
            raise UsageError(f"{dataset} is an alias of datasets, not one with a content")
    if not found:
        project.see_declarable(dataset)
    return not found


def _declarations(project: Project) -> list[Declaration]:
    return [*closed_over(project.in_code), *project.catalog.all()]


def _ask_policy(project: Project, dataset: str) -> None:
    if project.governor.policy is not None:
        project.make_home()  # for the approval that it may ask for
        project.governor.require(Action.SNAPSHOT, dataset, kind=DEFAULT_KIND)


def _record(
    project: Project,
    dataset: str,
    revision: str,
    *,
    backend: str,
    uri: str,
    declare: bool,
    content: Content | None = None,
    facts: Facts | None = None,
) -> Recorded:
    """Write the row, then see to the asset."""
    project.make_home()
    governor = project.governor
    where = {"revision": revision, "backend": backend, "uri": uri}
    with governor.recorded(Action.SNAPSHOT, dataset, **where) as told:
        row, new = project.revisions.record(
            dataset,
            revision,
            backend=backend,
            uri=uri,
            now=utc_now(),
            actor=project.home.actor,
            facts=facts,
            content=content,
            declare=declare,
        )
        recorded = _advanced(project, row, new, content.notes if content is not None else ())
        told.update(new=new, version=recorded.revision.version)
    return recorded


def _advanced(
    project: Project, revision: Revision, new: bool, notes: tuple[str, ...] = ()
) -> Recorded:
    deadline = time.monotonic() + CLAIM_SECONDS
    held_up = ""
    while revision.version is None:
        try:
            project.advance_to_revisions(revision.dataset)
        except Exception as error:  # noqa: BLE001 - whatever it is, the revision is recorded
            held_up = str(error)
            if Node(revision.dataset) in project.ledger.claims() and time.monotonic() < deadline:
                time.sleep(0.2)
                continue
            break
        held_up = ""
        revision = project.revisions.of(revision.dataset)[-1]
    if held_up:
        held_up = (
            f"the revision is recorded, but {revision.dataset} has not advanced to it yet: "
            f"{held_up} → that is made up for at the next snapshot or status"
        )
    return Recorded(revision, new, notes, held_up)


def _as_text(uri: str) -> str:
    """Give a path as text that a database takes; bytes that are no UTF-8 as a URI has them."""
    try:
        uri.encode()
    except UnicodeEncodeError:
        return Path(uri).as_uri()
    return uri

"""Where jobs run: what they ask for, which cores and GPUs they get, as the simple scheduler does."""

CORES = 8
GPUS = 2
"""Of one node."""


def whole_node():
    return [list(range(CORES)), list(range(GPUS))]


def place(asked, free):
    """Give ``{rank: [cores, gpus]}``, or None where there is no room now.

    The node with the most free cores comes first.
    """
    ranks = sorted(
        (rank for rank in asked["eligible"] if rank in free),
        key=lambda rank: (-len(free[rank][0]), rank),
    )
    if asked["nodes"]:
        each = _of_node(asked)
        fit = [r for r in ranks if len(free[r][0]) >= each[0] and len(free[r][1]) >= each[1]]
        fit = fit[: asked["nodes"]]
        if len(fit) < asked["nodes"]:
            return None
        return {r: [free[r][0][: each[0]], free[r][1][: each[1]]] for r in sorted(fit)}
    found, left = {}, asked["tasks"]
    for rank in ranks:
        slots = min(left, _slots(asked, *map(len, free[rank])))
        if slots:
            cores, gpus = slots * asked["cores"], slots * asked["gpus"]
            found[rank] = [free[rank][0][:cores], free[rank][1][:gpus]]
            left -= slots
    return None if left else dict(sorted(found.items()))


def unsatisfiable(asked):
    """Say why it can never run; empty where it can."""
    ranks = asked["eligible"]
    empty = {rank: whole_node() for rank in ranks}
    if place(asked, empty) is not None:
        return ""
    tasks, cores, gpus = asked["tasks"], asked["cores"], asked["gpus"]
    if asked["nodes"]:
        each, want = _of_node(asked), f"need {asked['nodes']}"
        fit = len(ranks) if each[0] <= CORES and each[1] <= GPUS else 0
        if asked["whole"]:
            return f"{want} exclusive node(s), only {fit} eligible"
        more = f" and {each[1]} GPUs" if each[1] else ""
        return f"{want} node(s) with {each[0]} cores{more} each, only {fit} eligible"
    by_cores = len(ranks) * (CORES // cores)
    if tasks > by_cores:
        return (
            f"need {tasks} slot(s) of {cores} core(s), only {by_cores} such slot(s) available "
            f"(total cores: {len(ranks) * CORES})"
        )
    by_gpus = len(ranks) * (GPUS // gpus)
    return (
        f"need {tasks} slot(s) with {gpus} GPU(s) each, only {by_gpus} available "
        f"(total GPUs: {len(ranks) * GPUS})"
    )


def summary(room):
    """Write ``rank[0-1]/core[0-7],gpu0``."""
    alike = {}
    for rank, (cores, gpus) in room.items():
        what = f"core{_numbers(cores)}" + (f",gpu{_numbers(gpus)}" if gpus else "")
        alike.setdefault(what, []).append(rank)
    return " ".join(f"rank{_numbers(ranks)}/{what}" for what, ranks in alike.items())


def ranks_text(ranks):
    return _numbers(sorted(ranks))


def hosts_text(ranks):
    """Write ``node[1-2]``: the host of rank 0 is node1."""
    return f"node{_numbers([rank + 1 for rank in sorted(ranks)])}" if ranks else ""


def _of_node(asked):
    """Give the cores and GPUs of each node of a request for nodes."""
    if asked["whole"]:
        return CORES, GPUS
    slots = -(-asked["tasks"] // asked["nodes"])
    return slots * asked["cores"], slots * asked["gpus"]


def _slots(asked, cores, gpus):
    by_gpus = gpus // asked["gpus"] if asked["gpus"] else asked["tasks"]
    return min(cores // asked["cores"], by_gpus)


def _numbers(numbers):
    """Write ``3``, ``[0-7]`` or ``[0,2-3]``."""
    parts = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
    return text if len(numbers) == 1 else f"[{text}]"

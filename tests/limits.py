"""Limits that a test lets pass: on a busy machine what they end may not have begun by then."""

LONGEST_SECONDS = 300


def once_begun(attempt, seconds=0.5):
    """Let limits pass, each longer than the former, until one ended what had begun before it.

    ``attempt`` is given the limit in seconds, and gives something true if that was so.
    """
    while not (found := attempt(seconds)):
        seconds *= 4
        assert seconds < LONGEST_SECONDS, "it never began before its limit"
    return found

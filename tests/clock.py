from datetime import timedelta, timezone


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now

    def set(self, now):
        assert now.tzinfo is not None
        self.now = now.astimezone(timezone.utc)

    def advance(self, **amount):
        self.now += timedelta(**amount)

"""Stand-ins for processes that a benchmark starts."""


class Ended:
    """A process that has ended without an error."""

    returncode = 0

    def poll(self):
        return 0

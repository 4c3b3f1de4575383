"""Why a peer has no numbers."""


class Absent(Exception):
    """The peer is not on this machine."""


class Refused(Exception):
    """The peer does not compute this call."""


class Wrong(Exception):
    """The peer's results are wrong."""


def first_line(error):
    """An exception as one line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


def imported(module, remedy):
    """A module; raises `Absent` with the remedy if it cannot be imported."""
    try:
        return __import__(module, fromlist=["*"])
    except Exception as error:  # a broken library may raise anything
        raise Absent(f"`{module}` cannot be imported ({first_line(error)}); {remedy}") from error

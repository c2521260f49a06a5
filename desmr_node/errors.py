"""What can go wrong through the user's doing: one type per kind of mistake, each message with a remedy."""


class DesmrError(Exception):
    """Any error this package raises on purpose; its text is one sentence a person can act on."""


class ConfigError(DesmrError, ValueError):
    """A setting that cannot work: says which one, why, and what to write instead."""


class DataError(DesmrError, ValueError):
    """Rows that cannot be fitted: says where (node, row, column) and what to do about it."""

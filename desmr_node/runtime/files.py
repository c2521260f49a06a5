"""Files that are complete or not there, and nobody else's to read."""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes, *, keep: Path | None = None) -> None:
    """Whoever reads the path sees the old content or the new, never half of it; also after a power cut.

    ``keep`` is where the old content goes.
    """
    draft = path.with_name(path.name + ".new")
    try:
        with open(draft, "wb", opener=_private) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            path.replace(keep)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

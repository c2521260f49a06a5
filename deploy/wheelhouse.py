"""Fill deploy/wheelhouse: every package that the image's build installs, as wheels for its Python.

Run it where a package index is reached (it asks the one that pip is configured for); the folder can then be
carried to a site that reaches none. Nothing in it belongs to this project: the image is always built from
the sources beside it.
"""

import argparse
import platform
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy" / "wheelhouse"
#: Python and C library of the Dockerfile's base, and of its stand-in.
PYTHON, GLIBC = "3.11", 36
#: What other systems call the machines that wheels are made for.
_MACHINES = {"AMD64": "x86_64", "arm64": "aarch64"}


def requirements() -> list[str]:
    """What the package needs to run, and what builds it."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [*document["project"]["dependencies"], *document["build-system"]["requires"]]


def platforms(machine: str) -> list[str]:
    """Names of all systems whose wheels run on the base, newest first."""
    names = [f"manylinux_2_{minor}" for minor in range(GLIBC, 4, -1)]
    return [f"{name}_{machine}" for name in [*names, "manylinux2014", "manylinux2010", "manylinux1"]]


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=PYTHON, help="the base image's Python (default: %(default)s)")
    parser.add_argument(
        "--machine",
        default=_MACHINES.get(platform.machine(), platform.machine()),
        help="the machine the image will run on, such as x86_64 or aarch64 (default: %(default)s)",
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=FOLDER) as fresh:
        if not download(Path(fresh), arguments.python, arguments.machine):
            print(f"wheelhouse: pip could not fetch everything; {FOLDER} is as it was", file=sys.stderr)
            return 1
        for old in FOLDER.glob("*.whl"):
            old.unlink()
        for wheel in Path(fresh).iterdir():
            wheel.replace(FOLDER / wheel.name)
    wheels = list(FOLDER.glob("*.whl"))
    size = sum(wheel.stat().st_size for wheel in wheels) / 1e6
    print(f"{FOLDER}: {len(wheels)} wheels, {size:.0f} MB")
    return 0


def download(folder: Path, python: str, machine: str) -> bool:
    """Whether pip could fetch everything into the folder."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--dest", str(folder), "--only-binary", ":all:", "--python-version", python]
    for name in platforms(machine):
        command += ["--platform", name]
    return subprocess.run([*command, *requirements()]).returncode == 0


if __name__ == "__main__":
    sys.exit(main())

"""Makes .venv beside this file, with the packages that requirements.txt pins.

Needs Python 3.10 with its standard library, but neither pip nor a right to install anything. Exits
with 3, having said why, where there is no such Python.
"""

import hashlib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
VENV = HERE / ".venv"

# Taken where the distribution has split pip off from Python.
PIP = "pip-25.2-py3-none-any.whl"
PIP_SHA256 = "6d67a2b4e7f14d8b31b8b52648866fa717f45a1eb70e83002f4331d07e953717"


def main() -> int:
    if sys.version_info < (3, 10):
        return unable(f"the Python client needs Python 3.10, this is {sys.version.split()[0]}")
    for module in ("venv", "ssl"):
        if importlib.util.find_spec(module) is None:
            return unable(f"this Python has no module {module}")
    import venv

    has_pip = importlib.util.find_spec("ensurepip") is not None
    try:
        venv.create(VENV, clear=True, with_pip=has_pip)
    except subprocess.CalledProcessError:  # ensurepip is there by name only
        has_pip = False
        venv.create(VENV, clear=True, with_pip=False)
    with tempfile.TemporaryDirectory() as temporary:
        pip = ["-m", "pip"] if has_pip else [str(fetch_pip(pathlib.Path(temporary)) / "pip")]
        subprocess.run(
            [VENV / "bin" / "python", *pip, "install", "--quiet", "--disable-pip-version-check"]
            + ["--only-binary=:all:", "--no-deps", "--require-hashes", "-r", HERE / "requirements.txt"],
            check=True,
        )
    (VENV / "installed").touch()
    return 0


def unable(why: str) -> int:
    print(f"the official Python client is NOT tested: {why}", file=sys.stderr)
    return 3


def fetch_pip(to: pathlib.Path) -> pathlib.Path:
    """Brings pip itself from the package index; it runs out of its archive."""
    page = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pip/"
    with urllib.request.urlopen(page, timeout=60) as answer:
        found = re.search(rf'href="([^"]*/{re.escape(PIP)}[^"]*)"', answer.read().decode())
    if found is None:
        raise SystemExit(f"{page} has no {PIP}")
    with urllib.request.urlopen(urllib.parse.urljoin(page, found[1]), timeout=60) as answer:
        wheel = answer.read()
    if hashlib.sha256(wheel).hexdigest() != PIP_SHA256:
        raise SystemExit(f"{PIP} is not the file that it should be")
    path = to / PIP
    path.write_bytes(wheel)
    return path


if __name__ == "__main__":
    sys.exit(main())

"""Make `tracelyze/reports/assets/vendor/plotly/` again: fetch the pinned plotly.js, check it, compress it.

    python scripts/vendor_plotly.py            # needs npm; writes the folder
    python scripts/vendor_plotly.py --check    # offline; exits 1 when the folder does not match its VERSION file

To move to another release, change RELEASE and INTEGRITY (`npm view NAME@RELEASE dist.integrity`) and run it.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

NAME = "plotly.js-basic-dist-min"
RELEASE = "4.1.1"
INTEGRITY = "sha512-1oNF8PeQx2hv/y7tqEVWKD3JGwn/MGEMQ8mL9HUwsaqG9FGy/OU5FHUHvzqbqxN4mnwZGI9abTiE775C4kkjMQ=="
SCRIPT = "package/plotly-basic.min.js"
LICENSE = "package/LICENSE"
FOLDER = Path(__file__).resolve().parent.parent / "tracelyze" / "reports" / "assets" / "vendor" / "plotly"


def fetch(folder: Path) -> bytes:
    """The package as npm serves it, refused unless it is bit for bit the pinned one."""
    command = ["npm", "pack", f"{NAME}@{RELEASE}", "--pack-destination", str(folder), "--json"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    name = json.loads(answer.stdout)
    entry = name[0] if isinstance(name, list) else next(iter(name.values()))
    package = (folder / entry["filename"]).read_bytes()
    digest = "sha512-" + base64.b64encode(hashlib.sha512(package).digest()).decode()
    if digest != INTEGRITY:
        raise SystemExit(f"{NAME}@{RELEASE} is not the pinned package: {digest} instead of {INTEGRITY}")
    return package


def vendor() -> None:
    """Write the compressed script, its licence and the VERSION file."""
    with tempfile.TemporaryDirectory() as temporary:
        package = fetch(Path(temporary))
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        script, licence = (_member(archive, name) for name in (SCRIPT, LICENSE))
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "plotly-basic.min.js.gz").write_bytes(gzip.compress(script, 9, mtime=0))
    (FOLDER / "LICENSE").write_bytes(licence)
    facts = {
        "name": NAME,
        "version": RELEASE,
        "integrity": INTEGRITY,
        "sha256": hashlib.sha256(script).hexdigest(),
        "bytes": len(script),
    }
    (FOLDER / "VERSION").write_text("".join(f"{key}: {value}\n" for key, value in facts.items()), encoding="utf-8")


def check() -> str | None:
    """What is wrong with the folder, or None."""
    facts = dict(line.split(": ", 1) for line in (FOLDER / "VERSION").read_text(encoding="utf-8").splitlines())
    script = gzip.decompress((FOLDER / "plotly-basic.min.js.gz").read_bytes())
    if hashlib.sha256(script).hexdigest() != facts["sha256"]:
        return "plotly-basic.min.js.gz does not unpack to the script that VERSION names"
    if (facts["version"], facts["integrity"]) != (RELEASE, INTEGRITY):
        return f"VERSION names {facts['version']}, this script pins {RELEASE}"
    if f"v{RELEASE}".encode() not in script[:400]:
        return f"the banner of the script does not name v{RELEASE}"
    return None


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    if member is None:
        raise SystemExit(f"{NAME}@{RELEASE} has no {name}")
    return member.read()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="check the folder, fetch nothing")
    if parser.parse_args().check:
        problem = check()
        print(problem or f"{NAME}@{RELEASE}: as vendored", file=sys.stderr)
        return 1 if problem else 0
    vendor()
    return 0


if __name__ == "__main__":
    sys.exit(main())

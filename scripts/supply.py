"""What glassrank is installed with: licences against a list of allowed ones, and an SBOM.

    python scripts/supply.py                          # a table; exit status 1 if one is not allowed
    python scripts/supply.py --sbom FILE [--wheel W]  # CycloneDX JSON as well

`./scripts/wheel` makes wheel and SBOM together. What a package says of itself is read, in SPDX's
names; what is not on the list, or says nothing, is not allowed.
"""

import argparse
import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS = "glassrank"
ALLOWED = frozenset(
    "0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause BSL-1.0 CC0-1.0 CNRI-Python ISC LLVM-exception MIT "
    "MIT-CMU MPL-2.0 PSF-2.0 Zlib".split()
)
_NVIDIA = "LicenseRef-NVIDIA-Proprietary"
EXCEPTIONS = {
    **dict.fromkeys(
        (
            *("cuda-toolkit", "nvidia-cublas", "nvidia-cuda-cupti", "nvidia-cuda-nvrtc"),
            *("nvidia-cuda-runtime", "nvidia-cudnn-cu13", "nvidia-cufft", "nvidia-cufile"),
            *("nvidia-curand", "nvidia-cusolver", "nvidia-cusparse", "nvidia-cusparselt-cu13"),
            *("nvidia-nccl-cu13", "nvidia-nvjitlink", "nvidia-nvshmem-cu13"),
        ),
        frozenset({_NVIDIA}),
    ),
    "gensim": frozenset({"LGPL-2.1-only"}),
    "psycopg": frozenset({"LGPL-3.0-only"}),
    "psycopg-binary": frozenset({"LGPL-3.0-only"}),
}
"""Of extras, used unchanged where word vectors are trained, PostgreSQL is the first stage, or
PyTorch is the build for GPUs, which pip takes on Linux; never given away with ours."""

# Names from before there were expressions.
_OLD_NAMES = {
    "mit license": "MIT",
    "mit, bsd": "MIT AND BSD-3-Clause",
    "bsd": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "2-clause bsd": "BSD-2-Clause",
    "bsd 2-clause license": "BSD-2-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "modified bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "nvidia proprietary software": _NVIDIA,
    "psfl": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
}
_UNSAID = {"cuda-toolkit": _NVIDIA}
"""Of packages that do not say: it holds nothing but the names of others."""
_LONGEST_NAME = 60
"""Some packages have the whole text where the name should be."""


def licence(package: Distribution) -> str:
    """An SPDX expression; empty if the package does not say."""
    about = package.metadata
    if about.get("License-Expression"):
        return str(about["License-Expression"])
    named = str(about.get("License") or "").strip()
    if named and len(named) <= _LONGEST_NAME and named != "UNKNOWN":
        return _OLD_NAMES.get(named.lower(), named)
    title = named.partition("\n")[0].strip().lower()
    if title in _OLD_NAMES:
        return _OLD_NAMES[title]
    classifiers = [
        line.rpartition("::")[2].strip()
        for line in about.get_all("Classifier", [])
        if line.startswith("License :: ")
    ]
    said = " AND ".join(_OLD_NAMES.get(name.lower(), name) for name in classifiers)
    return said or _UNSAID.get(about["Name"], "")


def is_allowed(name: str, expression: str) -> bool:
    """Every part of it: of a choice, too, all sides."""
    parts = set(re.split(r"[\s()]+", expression)) - {"AND", "OR", "WITH", ""}
    return bool(parts) and parts <= ALLOWED | EXCEPTIONS.get(canonicalize_name(name), frozenset())


def installed() -> list[Distribution]:
    """All packages of this environment but our own, by name."""
    found = {canonicalize_name(one.metadata["Name"]): one for one in distributions()}
    return [found[name] for name in sorted(found) if name != OURS]


def needed(package: Distribution, extras: frozenset[str]) -> Iterator[Distribution]:
    """What a package's own requirements name, where it is installed."""
    for line in package.requires or ():
        wanted = Requirement(line)
        markers = [{"extra": extra} for extra in extras] or [{"extra": ""}]
        if wanted.marker is None or any(wanted.marker.evaluate(one) for one in markers):
            try:
                yield distribution(wanted.name)
            except ModuleNotFoundError:  # an extra that is not installed here
                continue


def closure(extras: frozenset[str]) -> dict[str, set[str]]:
    """Each package that ours leads to, with what it leads to itself."""
    below: dict[str, set[str]] = {}
    waiting = [(distribution(OURS), extras)]
    while waiting:
        package, asked = waiting.pop()
        name = canonicalize_name(package.metadata["Name"])
        if name in below:
            continue
        found = list(needed(package, asked))
        below[name] = {canonicalize_name(one.metadata["Name"]) for one in found}
        waiting += [(one, frozenset()) for one in found]
    return below


def sbom(wheel: Path | None = None) -> dict[str, Any]:
    """CycloneDX 1.6: what is needed to run, and, as optional, what extras bring here."""
    every = frozenset(distribution(OURS).metadata.get_all("Provides-Extra", [])) - {"test"}
    required, below = closure(frozenset()), closure(every)
    packages = {name: distribution(name) for name in sorted(below)}
    references = {name: f"pkg:pypi/{name}@{one.version}" for name, one in packages.items()}
    ours = component(OURS, packages[OURS], references[OURS], "application")
    if wheel is not None:
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        ours["hashes"] = [{"alg": "SHA-256", "content": digest}]
    components = [
        component(name, one, references[name])
        | {"scope": "required" if name in required else "optional"}
        for name, one in packages.items()
        if name != OURS
    ]
    content = json.dumps([ours, components], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": ours,
        },
        "components": components,
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[one] for one in below[name])}
            for name in packages
        ],
    }


def component(
    name: str, package: Distribution, reference: str, kind: str = "library"
) -> dict[str, Any]:
    return {
        "type": kind,
        "bom-ref": reference,
        "name": name,
        "version": package.version,
        "purl": reference,
        "licenses": [{"expression": licence(package) or "NOASSERTION"}],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sbom", type=Path, help="a file for the bill of materials")
    parser.add_argument("--wheel", type=Path, help="the wheel that it goes with")
    options = parser.parse_args()
    refused = []
    for package in installed():
        name, expression = package.metadata["Name"], licence(package)
        print(f"{name:28} {package.version:20} {expression or 'says nothing'}")
        if not is_allowed(name, expression):
            refused.append(name)
    if options.sbom is not None:
        options.sbom.write_text(json.dumps(sbom(options.wheel), indent=1) + "\n", "utf-8")
    if refused:
        sys.exit(f"error: the licences of {', '.join(refused)} are not allowed; see ALLOWED")


if __name__ == "__main__":
    main()

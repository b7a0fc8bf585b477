"""Python, the packages, and what the kernel allows."""

import ctypes
import importlib.metadata
import os
import platform
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from reconciler import __version__
from reconciler.apply.cgroup import own_group
from reconciler.cli.checks.finding import Finding, fail, ok, size, skip, warn

_DISTRIBUTION = "xgen-model"
_OLDEST, _NEWEST = (3, 11), (3, 14)
_ARCHITECTURES = ("x86_64", "aarch64")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_OPEN_FILES = 8192
"""Two a request in flight, and some for each backend; 2,000 idle streams take 4,000."""
_SHM_BYTES = 2**30
_FREE_BYTES = 2 * 2**30
_UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)


def machine_findings(models_dir: Path) -> Iterator[Finding]:
    yield _python()
    yield _packages()
    yield _open_files()
    yield _shared_memory(Path("/dev/shm"))
    yield _groups()
    yield _clock()
    yield _disk(models_dir)


def _python() -> Finding:
    here = f"{platform.python_version()}, {platform.machine()}"
    version = sys.version_info[:2]
    supported = "Python 3.11 to 3.14 on x86_64 or aarch64"
    if version < _OLDEST or platform.machine() not in _ARCHITECTURES:
        return fail("python", here, f"use {supported}")
    if version > _NEWEST:
        return warn("python", f"{here}; not tested with this release", f"use {supported}")
    return ok("python", here)


def _packages() -> Finding:
    try:
        required = importlib.metadata.requires(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        step = f"pip install {_DISTRIBUTION}"
        return warn("packages", f"{_DISTRIBUTION} runs from a folder; nothing is known", step)
    found, missing = [], []
    for requirement in required:
        name = _NAME.match(requirement)
        if name is None or "extra ==" in requirement:
            continue
        try:
            found.append(f"{name[0]} {importlib.metadata.version(name[0])}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name[0])
    if missing:
        step = f"pip install --force-reinstall {_DISTRIBUTION}"
        return fail("packages", f"missing: {', '.join(missing)}", step)
    return ok("packages", f"{_DISTRIBUTION} {__version__} with {', '.join(found)}")


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _OPEN_FILES:
        return ok("open files", f"{soft} at a time")
    room = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    return warn(
        "open files",
        f"{soft} at a time (the hard limit is {room}); each request takes two",
        f"ulimit -n {_OPEN_FILES * 8} before the agent starts, LimitNOFILE= in its systemd unit, "
        "or --ulimit nofile= of its container",
    )


def _shared_memory(path: Path) -> Finding:
    try:
        total = shutil.disk_usage(path).total
    except OSError as exc:
        step = "mount a tmpfs there; engines on several GPUs need it"
        return warn("shared memory", f"cannot read {path}: {exc.strerror}", step)
    if total >= _SHM_BYTES:
        return ok("shared memory", f"{path} has {size(total)}")
    return warn(
        "shared memory",
        f"{path} has {size(total)}; engines on several GPUs need more",
        "docker run --shm-size 8g, or an emptyDir with medium: Memory on /dev/shm",
    )


def _groups() -> Finding:
    """Not a fault: without one, /proc tells who is ours, but for who hides from it."""
    found = own_group()
    if isinstance(found, str):
        without = f"{found}; backends are told by their sessions and environment alone"
        return skip("cgroup", without)
    return ok("cgroup", f"each backend gets a group of its own in {found}")


def _clock() -> Finding:
    """Whether the kernel believes that its clock is synchronised; a store refuses requests that are
    15 minutes off."""
    state = ctypes.create_string_buffer(1024)  # struct timex, all zero: read only
    try:
        answer = ctypes.CDLL(None, use_errno=True).adjtimex(state)
    except (OSError, AttributeError):
        return skip("clock", "this system does not tell")
    if answer < 0:
        return skip("clock", "this system does not tell")
    if answer == _UNSYNCHRONISED:
        return warn("clock", "not synchronised, as far as the kernel knows", "run an NTP client")
    return ok("clock", "synchronised")


def _disk(models_dir: Path) -> Finding:
    there = next(path for path in (models_dir, *models_dir.parents) if os.path.exists(path))
    try:
        usage = shutil.disk_usage(there)
    except OSError as exc:
        step = "name another folder with --models-dir"
        return fail("disk", f"cannot read {there}: {exc.strerror}", step)
    said = f"{size(usage.free)} of {size(usage.total)} free for {models_dir}"
    if usage.free < _FREE_BYTES:
        return warn("disk", said, "free some, or name another folder with --models-dir")
    return ok("disk", said)

"""Small shared libraries in the place of the drivers' own, for the vendors' real Python modules.

They are compiled once a run. What they see is a text file (records.h), which a test may change
while something looks.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
_BOUND = re.compile(r"_libraries\['libamd_smi\.so'\]\.(\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLibraries:
    """`folder`: a ROCm installation, whose `lib` holds NVML too."""

    folder: Path

    def machine(
        self, place: Path, *, nvidia: str | None = None, amd: str | None = None
    ) -> dict[str, str]:
        """The environment in which a machine has these records. None: not this library."""
        variables = {}
        if nvidia is not None:
            variables["NVML_DESCRIPTION"] = _written(place / "nvml.txt", nvidia)
            variables["LD_LIBRARY_PATH"] = str(self.folder / "lib")
        if amd is not None:
            variables["AMD_SMI_DESCRIPTION"] = _written(place / "amd_smi.txt", amd)
            variables["ROCM_PATH"] = str(self.folder / "rocm")
        return variables


def records(kind: str, *each: Mapping[str, object]) -> str:
    """Lines of a description."""
    return "".join(
        f"{kind};{';'.join(f'{key}={value}' for key, value in values.items())}\n" for values in each
    )


def build(folder: Path) -> GpuLibraries:
    """Compile them into `folder`."""
    if shutil.which("gcc") is None:
        raise AssertionError("gcc is missing. Run: sudo apt-get install gcc libc6-dev")
    for name in ("lib", "rocm/lib"):
        (folder / name).mkdir(parents=True)
    stubs = folder / "stubs.c"
    stubs.write_text(_stubs(), encoding="utf-8")
    _compile(folder / "lib/libnvidia-ml.so.1", _HERE / "nvml.c")
    _compile(folder / "rocm/lib/libamd_smi.so", _HERE / "amd_smi.c", stubs)
    return GpuLibraries(folder=folder)


def _compile(library: Path, *sources: Path) -> None:
    subprocess.run(
        ["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, *sources], check=True
    )


def _stubs() -> str:
    """What the module binds and we do not ask: each answers AMDSMI_STATUS_NOT_SUPPORTED."""
    found = importlib.util.find_spec("amdsmi")
    assert found is not None
    assert found.submodule_search_locations is not None
    wrapper = Path(found.submodule_search_locations[0], "amdsmi_wrapper.py")
    names = sorted(set(_BOUND.findall(wrapper.read_text(encoding="utf-8"))))
    return "".join(f"__attribute__((weak)) int {name}(void) {{ return 2; }}\n" for name in names)


def _written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return str(path)

"""What the id of a backend says of the devices that it runs on (design §8)."""

from reconciler.plan.gpus import Vendor

_ON_CPU = ("-cpu", "xllamacpp", "llama-cpp-python")
_VENDORS = {"-cuda": Vendor.NVIDIA, "-rocm": Vendor.AMD}
"""By the end of an id."""


def vendor_of(backend: str) -> Vendor | None:
    """Whose GPUs it needs; None: anybody's, or none."""
    return next((vendor for end, vendor in _VENDORS.items() if backend.endswith(end)), None)


def is_for_cpu(backend: str) -> bool:
    return backend.endswith(_ON_CPU)

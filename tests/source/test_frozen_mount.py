from reconciler.source.frozen_mount import frozen_mount

KUBELET = "/var/lib/kubelet/pods/7/volumes/kubernetes.io~configmap/manifest"


def mounts(root: str, point: str) -> str:
    return (
        "22 1 253:1 / / rw,relatime - ext4 /dev/vda rw\n"
        f"90 22 253:1 {root} {point} ro,relatime - ext4 /dev/vda rw\n"
    )


def test_a_sub_path_of_a_config_map_is_frozen() -> None:
    """kubernetes#50345 (scenario 39): a subPath is bound to one revision for ever."""
    text = mounts(f"{KUBELET}/..2026_11_29_10_00_00.12/m.yaml", "/etc/xgen/m.yaml")

    assert frozen_mount(text, "/etc/xgen/m.yaml") == "/etc/xgen/m.yaml"


def test_a_whole_volume_is_not_frozen() -> None:
    """kubernetes#50345 (scenario 39): the same ConfigMap, mounted whole, is updated."""
    assert frozen_mount(mounts(KUBELET, "/etc/xgen"), "/etc/xgen") is None


def test_only_the_mount_that_holds_the_path_counts() -> None:
    text = mounts(f"{KUBELET}/..2026_11_29_10_00_00.12/m.yaml", "/etc/xgen\\040other")

    assert frozen_mount(text, "/etc/xgen/m.yaml") is None
    assert frozen_mount(text, "/etc/xgen other") == "/etc/xgen other"

"""Which prefixes a bucket holds: two levels of folders."""

from minio import Minio


def prefixes_in(client: Minio, bucket: str, base: str) -> tuple[str, ...]:
    """Sorted. `base`: "" or a folder of the bucket, with a slash at its end. Raises S3_FAILURES."""
    found = [
        folder for top in _folders(client, bucket, base) for folder in _folders(client, bucket, top)
    ]
    return tuple(sorted(key.removeprefix(base).rstrip("/") for key in found))


def _folders(client: Minio, bucket: str, below: str) -> list[str]:
    items = client.list_objects(bucket_name=bucket, prefix=below, recursive=False)
    return [item.object_name for item in items if item.is_dir and item.object_name]

"""Pulls one model again and again, each time in a process that may be killed.

Run as a program: `python -m tests.cache.pulling ENDPOINT BUCKET`. Every line on stdin is a models
folder to pull into; the answer is the process's id, and later how it ended.
"""

import os
import sys
from pathlib import Path

from reconciler.cache.model_cache import ModelCache
from reconciler.hub.s3_apart import S3StoreApart
from reconciler.hub.s3_settings import S3Settings
from reconciler.plan.desired import ModelSpec
from tests.s3_server import KEYS


def pull(settings: S3Settings, models: Path) -> None:
    cache = ModelCache(models, S3StoreApart(settings))
    cache.open()
    cache.fetch(ModelSpec(source="gguf/org_name"))


def main(endpoint: str, bucket: str) -> None:
    settings = S3Settings(endpoint=endpoint, bucket=bucket, keys=KEYS)
    for line in sys.stdin:
        pid = os.fork()  # there is no thread yet
        if pid == 0:
            pull(settings, Path(line.rstrip("\n")))
            os._exit(0)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

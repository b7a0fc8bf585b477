"""Write anew what is generated of the chart: `python -m tests.deploy.written`."""

import json
import tempfile
from pathlib import Path

from tests.deploy.chart_required import required
from tests.deploy.chart_table import README, SCHEMA, page, schema
from tests.deploy.golden import CASES, FOLDER, snapshot
from tests.deploy.rendering import Chart


def main() -> None:
    values = schema()
    values["$defs"]["complete"] = required()
    SCHEMA.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    README.write_text(page(README.read_text(encoding="utf-8")), encoding="utf-8")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        chart = Chart(Path(folder))
        for case in CASES:
            place = FOLDER / f"{case}.yaml"
            place.write_text(snapshot(case, chart), encoding="utf-8")


if __name__ == "__main__":
    main()

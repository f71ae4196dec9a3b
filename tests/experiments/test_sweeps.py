"""What the experiments put into their tables."""

import json
from pathlib import Path

import pytest

from bidirl.core.errors import ConfigError
from bidirl.core.topology import Direction
from bidirl.runtime.outputs.report import Chart, Report, interval
from experiments import fig5, table5
from experiments.sweeps import A6000, Cell, Claim, ordered, run_cells, split

SMALL = ("--num_steps=4", "--groups_per_batch=8", "--simulation.model=qwen3-vl-2b")


def test_the_interval_is_students() -> None:
    found = interval([1.0, 2.0, 3.0])
    assert (found.mean, found.count) == (2.0, 3)
    assert found.half_width == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert interval([5.0]).half_width == 0.0


def test_a_report_is_written_in_all_forms(tmp_path: Path) -> None:
    chart = Chart("x", "y", ("a", "b"), {"s": [interval([1.0, 2.0]), None]})
    report = Report("r", "50% of a_b (simulated)", ("c", "d"), (("x|y", "1 ± 2"),), ("note",), chart)
    paths = {path.suffix: path for path in report.write(tmp_path)}
    assert r"x\|y" in paths[".md"].read_text()
    assert r"50\% of a\_b" in paths[".tex"].read_text()
    assert paths[".csv"].read_text().splitlines() == ["c,d", "x|y,1 ± 2"]
    assert paths[".png"].read_bytes().startswith(b"\x89PNG")


def test_a_cell_that_is_refused_is_kept_as_not_run() -> None:
    good = Cell("split", "2 + 2", A6000, (*SMALL, split(2, 2)))
    bad = Cell("split", "2 + 3", A6000, (*SMALL, split(2, 3)))
    ran, refused = run_cells((good, bad), ("NoBorrow", "ModelGuided"), 2)
    assert ran.gain(1) is not None
    assert refused.gain(1) is None
    assert "not a multiple" in refused.failure


def test_claims_say_agrees_disagrees_or_not_run() -> None:
    assert [Claim("", "", "", holds).row()[3] for holds in (True, False, None)] == ["agrees", "disagrees", "not run"]
    assert ordered([interval([2.0]), interval([1.0])]) is True
    assert ordered([interval([1.0]), interval([1.0])]) is False
    assert ordered([interval([1.0]), None]) is None


def test_every_cell_of_fig5_parses() -> None:
    from bidirl.cli.ablate import parse_cell

    for cell in fig5.CELLS:
        assert parse_cell(cell.file, cell.options, "NoBorrow", 1).seed == 1


def test_table5_takes_real_runs_only(tmp_path: Path) -> None:
    costs = {str(d): {"in": 0.5, "out": 0.25, "grad": None} for d in Direction}
    (tmp_path / "summary.json").write_text(json.dumps({"world": "ray", "switch_cost_seconds": costs}))
    rows = {row[0]: row[1] for row in table5.table(table5.real_summaries([tmp_path])).rows}
    assert rows["R-on-T C_in"].startswith("0.500")
    assert rows["T-on-R C_grad"] == "not run"
    (tmp_path / "summary.json").write_text(json.dumps({"world": "sim", "switch_cost_seconds": costs}))
    with pytest.raises(ConfigError, match="simulated"):
        table5.real_summaries([tmp_path])

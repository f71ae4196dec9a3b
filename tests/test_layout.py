"""The architecture, checked: who may import what, how large files are, and that the simulator stays light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bidirl.cli.config import Config
from bidirl.cli.parsing import parse_config

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "bidirl").rglob("*.py"))
HEAVY = ("torch", "ray", "vllm", "deepspeed", "transformers", "wandb")


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def package(file: Path) -> str:
    parts = file.relative_to(ROOT / "bidirl").parts
    return parts[0] if len(parts) > 1 else ""


@pytest.mark.parametrize("file", [f for f in SOURCES if package(f) == "core"], ids=lambda f: f.stem)
def test_core_imports_only_the_standard_library_and_numpy(file: Path) -> None:
    allowed = {*sys.stdlib_module_names, "numpy"} - {"time", "random"}
    for name in imports(file):
        assert name.startswith("bidirl.core") or name.partition(".")[0] in allowed, name


@pytest.mark.parametrize("file", SOURCES, ids=lambda f: str(f.relative_to(ROOT)))
def test_files_stay_small(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 500


def test_only_one_module_knows_jsonargparse() -> None:
    users = [f.name for f in SOURCES if any(name.partition(".")[0] == "jsonargparse" for name in imports(f))]
    assert users == ["parsing.py"]


@pytest.mark.parametrize(
    "file", [f for f in SOURCES if package(f) in ("core", "policies", "models")], ids=lambda f: f.stem
)
def test_nothing_above_the_cluster_asks_which_world_it_is_in(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            names = {n.attr for n in ast.walk(node.test) if isinstance(n, ast.Attribute)}
            names |= {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
            assert not names & {"world", "simulate", "simulated", "is_simulation"}, ast.unparse(node.test)


def test_the_simulator_and_the_command_line_need_no_heavy_package() -> None:
    program = (
        "import pkgutil, sys, bidirl, bidirl.core, bidirl.policies, bidirl.models, bidirl.runtime.sim, bidirl.cli\n"
        "for p in (bidirl.core, bidirl.policies, bidirl.models, bidirl.runtime.sim, bidirl.cli):\n"
        "    [__import__(m.name) for m in pkgutil.walk_packages(p.__path__, p.__name__ + '.')]\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"


CONFIGS = sorted((ROOT / "experiments").rglob("*.yaml"))


@pytest.mark.parametrize("file", CONFIGS, ids=lambda f: str(f.relative_to(ROOT)))
def test_every_checked_in_config_parses(file: Path) -> None:
    parse_config(Config, file, unbuilt=("task", "ray", "simulation"))

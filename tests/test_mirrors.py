"""Every source file has its mirror: src/longtail/a/b.py is tested in tests/a/test_b.py."""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_source_file_has_a_mirror() -> None:
    source = ROOT / "src" / "longtail"
    modules = [path.relative_to(source) for path in source.rglob("*.py")]
    missing = [
        str(path)
        for path in modules
        if path.name != "__init__.py"
        and not (ROOT / "tests" / path.parent / f"test_{path.name}").exists()
    ]
    assert not missing

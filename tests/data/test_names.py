import subprocess
import sys

from longtail.data.names import KNOWN, unknown


def test_names_are_listed_without_torch() -> None:
    code = "import sys, longtail.data.names; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=False).returncode == 0


def test_an_unknown_name_gets_the_known_and_the_closest() -> None:
    said = unknown("cifar100lt")
    assert "Did you mean 'cifar100-lt'?" in said
    assert all(name in said for name in KNOWN)
    assert "Did you mean" not in unknown("zzz")

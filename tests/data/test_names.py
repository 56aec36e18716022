import subprocess
import sys


def test_names_are_listed_without_torch() -> None:
    code = (
        "import sys, longtail.data.names; sys.exit('torch' in sys.modules or 'numpy' in"
        " sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=False
        ).returncode
        == 0
    )

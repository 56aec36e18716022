"""The command without its script, as in an environment whose scripts are not on the path."""

import subprocess
import sys

import longtail


def test_the_package_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "longtail", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == longtail.__version__

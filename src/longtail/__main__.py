"""`python -m longtail` is the command `longtail`."""

from longtail.cli.entry import run

if __name__ == "__main__":
    run()

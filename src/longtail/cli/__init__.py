"""The commands of `longtail`.

Torch is imported inside the commands that compute, so that `--help` is fast.
"""

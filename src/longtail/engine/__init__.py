"""Runs any method and has heard of none."""

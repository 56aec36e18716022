"""Trains any method; imports none."""

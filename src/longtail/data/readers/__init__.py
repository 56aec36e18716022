"""Readers: one file for each layout of data."""

"""The files of a run folder: what they are called, how they are written and read. Imports no torch."""

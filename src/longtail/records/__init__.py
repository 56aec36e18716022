"""The files of a run folder: their names, and how they are written and read, without torch."""

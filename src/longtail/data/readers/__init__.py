"""One file for each layout that data comes in."""

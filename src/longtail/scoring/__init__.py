"""How predictions become numbers: one file for each kind of task."""

"""A trained network behind a web page and a small JSON interface."""

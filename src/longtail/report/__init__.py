"""From run folders to tables. Reads files only and never imports torch."""

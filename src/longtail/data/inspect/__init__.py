"""What `longtail inspect` finds out about data before training."""

"""The checks of `longtail inspect`: statistics, unusual images and duplicates."""

"""Image files become pixels: decoding, reading, caches of their digests."""

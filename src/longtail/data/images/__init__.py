"""Decoding, reading and storing images, and a cache of their digests."""

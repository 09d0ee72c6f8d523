"""TOML files to a checked model: ``load.load`` and ``load.load_profile`` are the way in.

Nothing is imported here: zvaultctl needs ``paths`` alone, and must not wait for pydantic.
"""

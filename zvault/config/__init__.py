"""TOML files to a checked model: ``load_config.load_config`` and ``load_config.load_profile`` are the way in.

Nothing is imported here: zvaultctl needs ``paths`` alone, and must not wait for pydantic.
"""

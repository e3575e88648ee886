"""Schemes, settings and profiles. Nothing here imports torch, so that the command line starts at once.

Import from the files themselves: `schemes` needs nothing but Python, while settings (`loading`) need pydantic.

May import: files, slots.
"""

"""The run directory, and the one way in which tasks run: in turn, in processes, or on Ray.

Imports rooms up to `audit`. What a task does is passed in as a function.
"""

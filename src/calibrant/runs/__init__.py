"""The run directory, and the one way in which tasks run: in turn, in processes, or on Ray.

What a task does is passed in as a function.

May import: files, slots, config, evaluation.
"""

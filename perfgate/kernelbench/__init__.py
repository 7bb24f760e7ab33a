"""Speed of the kernels: what is timed, how, what it is compared with, and what it is held to.

Everything but `timing` and `machine` is pure; nothing here but `baseline` and `judge` needs more than Python's own library.
"""

"""A functional emulator of compiled PTX for Hopper: what a kernel computes, and whether its warps are ordered as they must be.

It runs one block at a time, a warpgroup as 128 lanes in lockstep and the warpgroups in a random interleaving, on numpy alone.
Every access of shared memory is checked against a happens-before order of warps, so that a missing wait, fence or barrier shows
whatever the interleaving. It knows the instructions that the suite's kernels compile to, and refuses any other by name.
"""

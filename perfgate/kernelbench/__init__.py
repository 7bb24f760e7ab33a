"""Speed of the kernels: what is timed, how, what it is compared with, and what it is held to.

``timing`` and ``machine`` ask the card, ``cli`` reads and writes files, the rest is pure. Measuring takes torch and Python's
own library alone, so that it runs on a bare GPU host; judging (``baseline``, ``judge``) takes the gate's requirements.
"""

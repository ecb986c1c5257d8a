"""Room for JAX's threads on machines with few cores.

A batch of small factorisations or triangular solves is cut into tasks for JAX's thread pool by a
thread of that pool, which then waits for them. Where as many of these run at once as the pool has
threads, all wait and none works: on two cores, two independent batched solves in one program hang
for good. One thread more than cores is enough for two networks at once, and costs a tenth; the
closed forms of one network make no two such calls that could run together. The pool's size is read
from the environment when JAX starts its first device.
"""

import os

ENOUGH = 3


def make_room() -> None:
    """Give the pool enough threads that some are left to work. One core has no such pool."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores is not None and 1 < cores < ENOUGH:
        os.environ.setdefault("NPROC", str(ENOUGH))


make_room()

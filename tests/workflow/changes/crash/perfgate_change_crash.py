"""A change that kills the scheduler as soon as 48 requests run together: C=1 and C=16 work, C=64 does not.

One point alone, since a recipe starts one server more after a death: with two such points nothing is measured at all.
"""

import os
import signal


def register() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def die(original, scheduler, batch, *arguments, **options):
        if len(batch.reqs) >= 48:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(scheduler, batch, *arguments, **options)

    HookRegistry.register("sglang.srt.managers.scheduler.Scheduler.run_batch", die, HookType.AROUND)

"""A change that kills the scheduler as soon as sixteen requests decode together: C=1 works, C=16 does not."""

import os
import signal


def register() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def die(original, scheduler, batch, *arguments, **options):
        if len(batch.reqs) >= 16:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(scheduler, batch, *arguments, **options)

    HookRegistry.register("sglang.srt.managers.scheduler.Scheduler.run_batch", die, HookType.AROUND)

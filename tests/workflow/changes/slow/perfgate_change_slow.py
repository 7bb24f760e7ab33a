"""A change that makes each scheduler step far slower: every batch waits, so that C=1 falls below its smoke floor."""

import os
import time

STEP_SECONDS = float(os.environ.get("CHANGE_STEP_SECONDS", "0.05"))
"""By default far past the floor: the smoke floor of cpu-tiny is about a fifth of its speed, and a step takes some milliseconds there."""


def register() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def wait(original, *arguments, **options):
        time.sleep(STEP_SECONDS)
        return original(*arguments, **options)

    HookRegistry.register("sglang.srt.managers.scheduler.Scheduler.run_batch", wait, HookType.AROUND)

"""What `train.fit` asks of the machine: how many threads it may use, and what Stop means."""

import os
import signal
from contextlib import contextmanager
from pathlib import Path


def threads(proc="/proc/self/cgroup", root="/sys/fs/cgroup"):
    """How many CPU threads this process may really use: a container grants fewer than the host has.

    The least of the process's affinity, the CPU quota of its cgroup and those around it (versions 1 and 2), and the
    environment variable CPU_LIMIT, which Binder sets; never below 1.
    """
    granted = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    try:
        lines = Path(proc).read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers in ("", "cpu", "cpu,cpuacct", "cpuacct,cpu"):
            top = Path(root) / controllers
            folder = top / path.lstrip("/")
            granted += [
                quota for place in (folder, *folder.parents) if place.is_relative_to(top) for quota in _quota(place)
            ]
    try:
        granted.append(float(os.environ.get("CPU_LIMIT", "inf")))
    except ValueError:  # a limit that is no number is no limit
        pass
    return max(1, int(min(limit for limit in granted if limit > 0)))


def _quota(folder):
    """CPUs granted by one cgroup folder: a list of one number, or of none where it sets no limit."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota, period = ((folder / f"cpu.cfs_{n}_us").read_text(encoding="utf-8") for n in ("quota", "period"))
        return [int(quota) / int(period)]
    except (OSError, ValueError):  # no such file, or "max": no limit
        return []


class Stop:
    """Makes an interrupt a request that the loop answers between two steps: no update or file is left half done.

    A second interrupt breaks off at once where `may_break` says so, and nowhere else.
    """

    def __enter__(self):
        self.asked = self.breakable = False
        try:
            self.before = signal.signal(signal.SIGINT, self.ask)
        except ValueError:  # not the main thread, which alone gets signals
            self.before = None
        return self

    def __exit__(self, *_):
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)

    def ask(self, *_):
        if self.asked and self.breakable:
            raise KeyboardInterrupt
        self.asked = True

    @contextmanager
    def may_break(self):
        self.breakable = True
        try:
            yield
        finally:
            self.breakable = False

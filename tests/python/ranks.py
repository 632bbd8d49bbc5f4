"""Processes that run the same functions side by side, as one job of torch.distributed."""

import datetime
import multiprocessing
import os
import time
import traceback

import torch
import torch.distributed as dist

START_SECONDS = 240  # each loads torch, and other tests may keep the machine busy
TASK_SECONDS = 60


def _serve(rank, size, store, backend, connection):
    # Two processes on one machine; without a name gloo looks its own up, which fails without a network.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        backend,
        # A file, so that no port has to be free.
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=TASK_SECONDS),
    )
    connection.send(None)
    while (task := connection.recv()) is not None:
        function, arguments = task
        torch.manual_seed(20250807)
        try:
            function(*arguments)
            connection.send(None)
        except BaseException:
            connection.send(traceback.format_exc())
    dist.destroy_process_group()


class Ranks:
    """`size` processes of one job, started with the first task and again after one that failed."""

    def __init__(self, folder, backend="gloo", size=2):
        self.folder, self.backend, self.size = folder, backend, size
        self.starts = 0
        self.processes, self.connections = [], []

    def run(self, function, *arguments):
        """Calls `function`, of a module that the processes can import, in each of them.

        Raises AssertionError with the tracebacks if it fails in one of them or takes too long.
        """
        if not self.processes:
            self._start()
        self._do([(function, arguments)] * self.size, TASK_SECONDS)

    def _start(self):
        context = multiprocessing.get_context("spawn")
        self.starts += 1
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            store = self.folder / f"store{self.starts}"
            process = context.Process(
                target=_serve, args=(rank, self.size, store, self.backend, theirs), daemon=True, name=f"rank {rank}"
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self.connections.append(ours)
        self._do([], START_SECONDS)

    def _do(self, tasks, seconds):
        for connection, task in zip(self.connections, tasks, strict=False):
            connection.send(task)
        end = time.monotonic() + seconds
        errors = []
        for rank, connection in enumerate(self.connections):
            try:
                # Once one has failed the others may wait for it in vain.
                answered = connection.poll(1 if errors else max(0.0, end - time.monotonic()))
                error = connection.recv() if answered else "no answer in time"
            except EOFError:
                error = "the process has died"
            if error is not None:
                errors.append(f"rank {rank}: {error}")
        if errors:
            self._kill()
            raise AssertionError("\n".join(errors))

    def _kill(self):
        for process, connection in zip(self.processes, self.connections, strict=True):
            process.kill()
            process.join()
            connection.close()
        self.processes, self.connections = [], []

    def close(self):
        """Ends the processes."""
        for connection in self.connections:
            connection.send(None)
        for process in self.processes:
            process.join(10)
        self._kill()

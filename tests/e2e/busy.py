"""What a busy machine adds to times that tests measure."""

import threading
import time


class Share:
    """The part of its time that a thread gets which wants to compute, while this is open: 1 on a quiet machine. Times
    that a test measures meanwhile, multiplied by it, are about those of a quiet machine."""

    def __init__(self):
        self._got, self._wanted, self._done = 0, 0, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._done.wait(0.02):
            begun, used = time.monotonic(), time.thread_time()
            while time.thread_time() - used < 0.001:
                pass
            self._got += time.thread_time() - used
            self._wanted += time.monotonic() - begun

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()
        self.value = min(1, self._got / self._wanted) if self._wanted else 1

"""Jobs on the thread: all that fit are done, reads before writes, and a bug ends nothing."""

import threading

from headway.kv.job_thread import JobThread


def test_reads_come_first_and_writes_are_bounded() -> None:
    jobs = JobThread(max_queued_bytes=10)
    done: list[str] = []
    held, ended = threading.Event(), threading.Event()
    wakes: list[str] = []
    jobs.wake_with(lambda: wakes.append(done[-1]))
    started = threading.Event()

    def first() -> None:
        started.set()
        held.wait()

    assert jobs.write(first, 0)
    started.wait()
    assert jobs.write(lambda: done.append("w1"), 6)
    assert not jobs.write(lambda: done.append("too much"), 6)
    assert jobs.write(lambda: done.append("w2"), 4)
    jobs.read(lambda: done.append("r1"))
    jobs.read(lambda: done.append("r2"))
    assert jobs.write(ended.set, 0)
    held.set()
    ended.wait()
    assert done == ["r1", "r2", "w1", "w2"]
    assert wakes == ["r1", "r2"]


def test_a_job_that_fails_ends_neither_the_thread_nor_the_wait_for_it() -> None:
    jobs = JobThread()
    woken, ended = threading.Event(), threading.Event()
    jobs.wake_with(woken.set)

    def fails() -> None:
        raise ValueError("a bug")

    jobs.read(fails)
    woken.wait()
    assert jobs.write(ended.set, 1)
    ended.wait()


def test_a_thread_that_ended_is_started_again() -> None:
    jobs = JobThread()
    for _ in range(20):
        ended = threading.Event()
        jobs.write(ended.set, 1)
        ended.wait()

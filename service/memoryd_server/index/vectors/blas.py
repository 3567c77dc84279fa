"""Keeps the linear algebra under numpy on the thread that calls it."""

import threadpoolctl


def use_calling_thread_only() -> None:
    """Lets BLAS start no threads of its own, in the whole process.

    The products of a search take tenths of a millisecond. Shared out among threads they gain nothing on an idle
    machine, and on a busy one each product waits until the last thread had its turn: 100 ms instead of one.
    """
    threadpoolctl.threadpool_limits(1, user_api="blas")

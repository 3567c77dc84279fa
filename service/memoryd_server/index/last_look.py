"""What the last look at the disk has shown of the index: since when the two agree, and what could not be looked for."""

from memoryd_server.index.plan import Hidden, SyncPlan


class LastLook:
    """Kept by a sync engine, and read from any thread.

    `agreed_ns` is the beginning of the latest look that found, or left, disk and index in agreement (Unix nanoseconds;
    None before the first). `hidden` are the places that the latest look could not look into, with what they hide.
    """

    def __init__(self) -> None:
        self.agreed_ns: int | None = None
        self.hidden: tuple[Hidden, ...] = ()

    def note(self, plan: SyncPlan, began_ns: int, *, carried_out: bool = False) -> None:
        """Takes a plan in, made from a look that began at `began_ns`; `carried_out` when nothing is left of it to do.

        What is hidden is in no agreement: nobody knows whether it has changed.
        """
        self.hidden = plan.hidden
        if plan.whole and not plan.hidden and (carried_out or not plan.pending):
            self.agreed_ns = max(began_ns, self.agreed_ns or 0)

"""Lets a sync run on a sound index, whatever it finds."""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from memoryd_server.index.progress import SyncMode, SyncObserver
from memoryd_server.store.protocol import Store

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _HasStore(Protocol):
    _store: Store


_E = TypeVar("_E", bound=_HasStore)
_Run = Callable[Concatenate[_E, SyncMode, SyncObserver, Callable[[], bool], _P], _T]


def on_sound_index(run: "_Run[_E, _P, _T]") -> "_Run[_E, _P, _T]":
    """Begins a damaged index anew before `run`, and again where damage comes up meanwhile: then it runs once more."""

    @functools.wraps(run)
    def mended(
        self: _E,
        mode: SyncMode,
        observer: SyncObserver,
        should_stop: Callable[[], bool],
        /,
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        return self._store.on_sound_index(lambda stop: run(self, mode, observer, stop, *args, **kwargs), should_stop)

    return mended

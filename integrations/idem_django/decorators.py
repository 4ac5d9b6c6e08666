"""`@idempotent` and `@not_idempotent`, for everything that Django calls a view, and for routes to views."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar, overload

from asgiref.sync import iscoroutinefunction
from django.utils.decorators import method_decorator
from django.views import View as ViewClass

from idem_django.exchange import Exchange, exchange_of, native_request
from idem_django.marks import ATTRIBUTE, EXEMPT, Mark, View, checked_mark
from idem_django.routes import is_route, remade
from idem_middleware.errors import ConfigurationError

__all__ = ["idempotent", "not_idempotent"]

T = TypeVar("T")


@overload
def idempotent(target: T, /) -> T: ...
@overload
def idempotent(**overrides: Any) -> Callable[[T], T]: ...
def idempotent(target: Any = None, /, **overrides: Any) -> Any:
    """Run each request of a view once; it is claimed where this is written.

    Bare or with options of its own on top of the settings', on functions (sync and async), methods, classes,
    `as_view()` results, `path()` entries and `include()`. What stands outside of it (a login check, a permission) comes
    before any replay. The paths of the settings don't count for a view that is marked.

    Raises:
        ConfigurationError: unknown or wrong options, or nothing that could be protected.
    """
    mark = checked_mark(overrides)

    def decorate(target: Any) -> Any:
        return _marked(target, mark)

    return decorate if target is None else decorate(target)


def not_idempotent(target: T, /) -> T:
    """Leave a view alone: no key is asked for, and every request runs. On all that `idempotent` takes."""
    marked: T = _marked(target, EXEMPT)
    return marked


def _marked(target: Any, mark: Mark) -> Any:
    if is_route(target):
        return remade(target, lambda view, attribute: _claiming(view, mark, attribute))
    if isinstance(target, type):
        return _marked_class(target, mark)
    if not callable(target):
        raise ConfigurationError([f"this is no view, no class of views and no route to one: {target!r}"])
    return _claiming(target, mark)


def _marked_class(cls: type, mark: Mark) -> type:
    if not issubclass(cls, ViewClass):
        raise ConfigurationError([f"{cls.__qualname__} is no class of views (django.views.View)"])
    if _is_api(cls):
        from idem_django.rest_framework import claiming_class  # noqa: PLC0415 - only where it is installed

        return claiming_class(cls, mark)
    decorated: type = method_decorator(lambda view: _claiming(view, mark), name="dispatch")(cls)
    return decorated


def _is_api(cls: object) -> bool:
    """Whether it is a class of REST framework's: those claim after their authentication and permissions."""
    return hasattr(cls, "initialize_request")


def _claiming(view: View, mark: Mark, attribute: str = ATTRIBUTE) -> View:
    """The view behind a claim, if it is this mark that counts."""
    if _is_api(getattr(view, "cls", None)) and not mark.exempt:
        from idem_django.rest_framework import claiming_view  # noqa: PLC0415 - as above

        made = claiming_view(view)
        if made is not None:
            setattr(made, attribute, mark)
            return made
        if attribute == ATTRIBUTE:  # among routes given as a whole, a system check tells it
            problem = (
                f"{view.__qualname__} is an API view that other decorators are wrapped around, so a replay would come "
                "before its permissions: put this one directly on as_view(), on the class or on its method"
            )
            raise ConfigurationError([problem])
    wrapper = _wrapped_async(view, mark) if iscoroutinefunction(view) else _wrapped(view, mark)
    setattr(wrapper, attribute, mark)
    return wrapper


def _wrapped(view: View, mark: Mark) -> View:
    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if _gives_coroutine(view, args):
            return _run_async(view, mark, args, kwargs)
        exchange = _exchange(view, mark, args)
        answer = None if exchange is None else exchange.claim(view, mark)
        return view(*args, **kwargs) if answer is None else answer

    return wrapper


def _wrapped_async(view: View, mark: Mark) -> View:
    @wraps(view)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await _run_async(view, mark, args, kwargs)

    return wrapper


async def _run_async(view: View, mark: Mark, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    exchange = _exchange(view, mark, args)
    answer = None if exchange is None else await exchange.claim_async(view, mark)
    return await view(*args, **kwargs) if answer is None else answer


def _exchange(view: View, mark: Mark, args: tuple[Any, ...]) -> Exchange | None:
    """The exchange to claim at, if the claim has to be made here."""
    exchange = None if mark.exempt else exchange_of(native_request(args), view)
    return exchange if exchange is not None and exchange.waits_for(mark) else None


def _gives_coroutine(view: View, args: tuple[Any, ...]) -> bool:
    """Whether this is the `dispatch` of a class with async methods: a plain function that gives their coroutine."""
    # method_decorator passes a method with its object bound; otherwise the object comes first.
    owner = getattr(view.func, "__self__", None) if isinstance(view, partial) else next(iter(args), None)
    return isinstance(owner, ViewClass) and bool(owner.view_is_async)

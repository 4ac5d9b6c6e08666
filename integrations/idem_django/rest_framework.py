"""Django REST framework: views that claim after authentication, permissions and throttling."""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import Any, ClassVar

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.utils.decorators import classonlymethod

try:
    from rest_framework.views import APIView
except ImportError as error:
    raise ImportError("idem_django.rest_framework needs it: pip install 'idem-middleware[drf]'") from error

from idem_django.exchange import Exchange, exchange_of
from idem_django.marks import ATTRIBUTE, Mark, View, checked_mark
from idem_middleware.errors import ConfigurationError

__all__ = ["ClaimingDispatch", "IdempotentMixin", "claiming_class", "claiming_view"]

_AS_VIEW_MODULES = frozenset({"django.views.generic.base", "rest_framework.viewsets"})


class ClaimingDispatch:
    """Claims where the handler would be called: after `initial()`, whatever subclasses do in it."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Put the claim in front of the handler that REST framework will look up, on this one view object."""
        name = (request.method or "").lower()
        handler = getattr(self, name, None)
        exchange = exchange_of(request, type(self))
        if handler is not None and exchange is not None:
            own = getattr(type(self), ATTRIBUTE, None)
            chosen = exchange.mark or own
            if chosen is not None and not chosen.exempt and exchange.waits_for(chosen):
                marks = (chosen,) if own is None or own.exempt or own is chosen else (own, chosen)
                setattr(self, name, _claiming(handler, exchange, marks))
        return super().dispatch(request, *args, **kwargs)  # type: ignore[misc]


class IdempotentMixin(ClaimingDispatch):
    """For API views and viewsets: nobody gets a replay who may not make the request; `initial()` runs every time.

    `idempotency` holds the view's options; an action's own come by `@idempotent(…)` on the action, on top.

    Raises:
        ConfigurationError: when the class is made: unknown or wrong options, or the mixin stands behind `APIView`.
    """

    idempotency: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, **values: Any) -> None:
        super().__init_subclass__(**values)
        order = cls.__mro__
        if APIView in order and order.index(APIView) < order.index(ClaimingDispatch):
            raise ConfigurationError([f"{cls.__qualname__}: IdempotentMixin must come before APIView among its bases"])
        if "idempotency" in vars(cls) or getattr(cls, ATTRIBUTE, None) is None:
            setattr(cls, ATTRIBUTE, _checked(cls.idempotency, cls))

    @classonlymethod
    def as_view(cls, *args: Any, **initial: Any) -> Any:  # noqa: N805 - a class method
        """As REST framework's; `idempotency` may be given here, too."""
        own = initial.pop("idempotency", None)
        view = super().as_view(*args, **initial)  # type: ignore[misc]
        if own is not None:
            setattr(view, ATTRIBUTE, _checked(own, cls))
        return view


def claiming_class(cls: type, mark: Mark) -> type:
    """The class itself, protected with this mark as if it had the mixin."""
    if mark.exempt or issubclass(cls, ClaimingDispatch):
        setattr(cls, ATTRIBUTE, mark)
        return cls
    made: type = _with_dispatch(cls)
    setattr(made, ATTRIBUTE, mark)
    return made


def claiming_view(view: View) -> View | None:
    """A new view of the same class and arguments that claims; None if others are wrapped around it."""
    inner = getattr(view, "__wrapped__", None)
    if getattr(inner, "__globals__", {}).get("__name__") not in _AS_VIEW_MODULES:
        return None
    source: Any = view
    cls: Any = source.cls if issubclass(source.cls, ClaimingDispatch) else _with_dispatch(source.cls)
    actions = getattr(source, "actions", None)
    made: View = cls.as_view(*(() if actions is None else (actions,)), **source.initkwargs)
    return made


def _with_dispatch(cls: type) -> Any:
    names = ("__module__", "__qualname__", "__doc__")
    return type(cls.__name__, (ClaimingDispatch, cls), {name: getattr(cls, name) for name in names})


def _checked(options: object, cls: type) -> Mark:
    if not isinstance(options, Mapping):
        raise ConfigurationError([f"{cls.__qualname__}.idempotency must be a dictionary of options"])
    try:
        return checked_mark(options)
    except ConfigurationError as error:
        raise ConfigurationError([f"{cls.__qualname__}.idempotency: {each}" for each in error.problems]) from None


def _claiming(handler: View, exchange: Exchange, marks: tuple[Mark, ...]) -> View:
    if iscoroutinefunction(handler):

        @wraps(handler)
        async def claiming_async(*args: Any, **kwargs: Any) -> Any:
            answer = await exchange.claim_async(handler, *marks)
            return await handler(*args, **kwargs) if answer is None else answer

        return claiming_async

    @wraps(handler)
    def claiming(*args: Any, **kwargs: Any) -> Any:
        answer = exchange.claim(handler, *marks)
        return handler(*args, **kwargs) if answer is None else answer

    return claiming

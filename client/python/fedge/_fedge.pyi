"""The binding that client/python/bind.py describes: C's types are not known to mypy."""

from typing import Any, Callable, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

class _FFI:
    NULL: Any
    def def_extern(self, error: Any = ...) -> Callable[[F], F]: ...
    def __getattr__(self, name: str) -> Any: ...

ffi: _FFI
lib: Any

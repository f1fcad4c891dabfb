"""A GPU for machines without one: tensors that live on the CPU and say that they do not.

What PyTorch refuses on a GPU is refused here too: operations over tensors of two devices, and
handing one to NumPy. So code that forgets where its tensors are fails, though nothing is faster.
Numbers are the CPU's; what only a GPU's kernels do wrong is not seen.
"""

from collections.abc import Callable, Iterable
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("cuda", 0)

_CROSSING = {"aten::copy_", "aten::_to_copy", "aten::index", "aten::index_put_"}
"""These may mix devices: copies, and indices on the CPU."""
_FETCHING = {
    Tensor.cpu,
    Tensor.item,
    Tensor.tolist,
    Tensor.__bool__,
    Tensor.__float__,
    Tensor.__int__,
}
_GUARD = "PyTorch is not linked with support for cuda"
"""What some methods of PyTorch say before they ask any subclass."""


class _There(Tensor):
    """Wraps a tensor of the CPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Self:
        there = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=DEVICE,
        )
        there.inner = inner
        return there

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, _types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func._schema.name not in _CROSSING:
            _check_one_device(tree_leaves((args, kwargs)), str(func))
        target = kwargs.get("device")
        if target is not None:
            kwargs = {**kwargs, "device": "cpu"}
        result = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        if target is not None and torch.device(target).type == "cpu":
            return result
        first = func._schema.arguments[0].alias_info
        if first is not None and first.is_write:
            return args[0]
        return kwargs["out"] if "out" in kwargs else tree_map(_there, result)


class PretendGpu(TorchFunctionMode):
    """While entered, "cuda" is a device, and tensors can be made there and moved there."""

    def __torch_function__(
        self, func: Any, _types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if special := _SPECIAL.get(func):
            return special(func, *args, **kwargs)
        if func in _FETCHING:
            return func(_inner(args[0]), *args[1:], **kwargs)
        target = kwargs.get("device")
        if target is not None and torch.device(target).type == DEVICE.type:
            return _there(func(*args, **{**kwargs, "device": "cpu"}))
        try:
            return func(*args, **kwargs)
        except RuntimeError as exc:
            if _GUARD not in str(exc):
                raise
            return _run_inner(func, *args, **kwargs)


def _run_inner(func: Any, *args: Any, **kwargs: Any) -> Any:
    is_there = _check_one_device(tree_leaves((args, kwargs)), str(func))
    result = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    return tree_map(_there, result) if is_there else result


def _move(func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Be `Tensor.to`."""
    like = next((each for each in args if isinstance(each, Tensor)), None)
    device = kwargs.pop("device", None) if like is None else like.device
    dtype = kwargs.pop("dtype", None) if like is None else like.dtype
    for each in args:
        if isinstance(each, str | torch.device):
            device = each
        elif isinstance(each, torch.dtype):
            dtype = each
    kwargs = {name: value for name, value in kwargs.items() if name != "non_blocking"}
    was_there = isinstance(tensor, _There)
    is_there = was_there if device is None else torch.device(device).type == DEVICE.type
    inner = _inner(tensor)
    moved = func(inner, dtype or tensor.dtype, copy=was_there != is_there, **kwargs)
    if moved is inner:
        return tensor
    return _there(moved) if is_there else moved


def _get(func: Any, tensor: Tensor, index: Any) -> Tensor:
    got = func(_inner(tensor), tree_map(_inner, index))
    return _there(got) if isinstance(tensor, _There) else got


def _set(func: Any, tensor: Tensor, index: Any, value: Any) -> None:
    func(_inner(tensor), tree_map(_inner, index), _inner(value))


def _refuse_numpy(func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    if isinstance(tensor, _There):
        raise TypeError(f"can't convert {DEVICE} device type tensor to numpy")
    return func(tensor, *args, **kwargs)


def _are_of_one_kind(_func: Any, one: Tensor, other: Tensor) -> bool:
    return type(one) is type(other)


_SPECIAL: dict[Any, Callable[..., Any]] = {
    Tensor.to: _move,
    Tensor.__getitem__: _get,
    Tensor.__setitem__: _set,
    Tensor.numpy: _refuse_numpy,
    Tensor.__array__: _refuse_numpy,
    torch._has_compatible_shallow_copy_type: _are_of_one_kind,
    scaled_dot_product_attention: _run_inner,
}


def _check_one_device(values: Iterable[Any], operation: str) -> bool:
    """Return whether tensors are there; those without dimensions may be anywhere."""
    where = {
        isinstance(value, _There)
        for value in values
        if isinstance(value, Tensor) and (value.dim() or isinstance(value, _There))
    }
    if len(where) > 1:
        raise RuntimeError(f"{operation}: expected all tensors on one device, found {DEVICE}, cpu")
    return True in where


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, _There) else value


def _there(value: Any) -> Any:
    return _There(value) if isinstance(value, Tensor) and not isinstance(value, _There) else value

"""From arrays to a gemmd_product: types, shapes, layouts, and what must be copied on the way.

Copied are inputs of another type, of a layout that leading dimension and stride cannot say (a
negative or repeated step, single elements apart), and those in shared memory that overlap `out`.
An `out` of such a layout is written through a copy.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Union

import numpy as np

from ._elements import DTypeLike, Element, convert, from_bf16, holds, parse, storage
from ._errors import InvalidArgument
from ._interop import as_device, as_host
from ._layout import Layout, is_writable, layout_of
from ._library import COLUMN_MAJOR, DEFAULT, ROW_MAJOR, OperandRecord, ProductRecord
from ._memory import DeviceArray, device_array

if TYPE_CHECKING:
    from ._session import Session

Array = Union[np.ndarray, DeviceArray]


class Arguments(NamedTuple):
    """Of matmul(), as given."""

    a: Any
    b: Any
    out: Any
    c: Any
    alpha: float
    beta: float
    dtype: DTypeLike
    out_dtype: DTypeLike
    bias: Any = None
    activation: Optional[str] = None
    deadline: float = 0
    priority: int = 0


class Operand:
    """An array that takes part, as a stack of matrices, and what its elements are."""

    __slots__ = ("argument", "array", "element", "dimensions")

    def __init__(self, argument: str, value: Any, session: Session) -> None:
        self.argument = argument
        self.array: Array
        self.element: Optional[Element]
        view = None if isinstance(value, DeviceArray) else as_device(value, argument)
        if isinstance(value, DeviceArray):
            self.array, self.element = value, value.element
        elif view is not None:
            self.array, self.element = device_array(view, session), view.element
        else:
            self.array, self.element = as_host(value, argument)
        self.dimensions = len(self.array.shape)  # as given

    def become(self, element: Element) -> None:
        """Converts, by a copy, unless the elements are such already."""
        if holds(self.array.dtype, element) and self.element in (None, element):
            self.element = element
            return
        if isinstance(self.array, DeviceArray):
            raise InvalidArgument(
                f"a device array of {self.array.dtype.name} is not converted to "
                f"{element.name.lower()}",
                self.argument,
            )
        if self.element is Element.BF16:
            self.array = from_bf16(self.array)
        self.array, self.element = convert(self.array, element), element

    def layout(self, transposed: Optional[bool] = None) -> Optional[Layout]:
        array = self.array
        if isinstance(array, np.ndarray) and not array.flags.aligned:
            return None
        return layout_of(array.shape, array.strides, array.dtype.itemsize, transposed)

    def copy(self, transposed: bool = False) -> None:
        """Moves to memory of its own, rows together (or columns). A repeated batch is not."""
        array = self.array
        if isinstance(array, DeviceArray):
            raise InvalidArgument("this device view cannot be used as it lies", self.argument)
        shape = array.shape
        if array.strides[0] == 0:
            array = array[:1]
        if transposed:
            array = np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)
        else:
            array = np.array(array, order="C")
        self.array = np.broadcast_to(array, shape)

    def settled(self, transposed: Optional[bool] = None) -> Layout:
        """The layout, after a copy where there is none."""
        layout = self.layout(transposed)
        if layout is None:
            self.copy(bool(transposed))
            layout = self.layout(transposed)
        assert layout is not None
        return layout

    def place(self, record: OperandRecord, layout: Layout, session: Session) -> None:
        record.ld, record.stride = layout.ld, layout.stride
        array = self.array
        if isinstance(array, DeviceArray):
            record.buffer, record.offset = array.buffer_in(session, self.argument), array.offset
            return
        address = array.__array_interface__["data"][0]
        mapping = session.find(address, address + _span(array)) if array.size else None
        if mapping is None:
            record.data = address
        else:
            record.buffer, record.offset = mapping.buffer, address - mapping.address


def _span(array: np.ndarray) -> int:
    """Bytes from the first element to one past the last; steps are not negative."""
    steps = ((size - 1) * step for size, step in zip(array.shape, array.strides))
    return int(sum(steps)) + array.dtype.itemsize


def _input(argument: str, value: Any, session: Session, is_column: bool = False) -> Operand:
    """As (batch, rows, columns), without a copy. A vector is a row, or a column."""
    operand = Operand(argument, value, session)
    if not 1 <= operand.dimensions <= 3:
        raise InvalidArgument(
            f"{operand.dimensions} dimensions; 1 to 3 (a batch of matrices) are allowed", argument
        )
    if operand.dimensions == 1:
        index = (None, slice(None), None) if is_column else (None, None)
        operand.array = operand.array[index]
    elif operand.dimensions == 2:
        operand.array = operand.array[None]
    return operand


# --- types -----------------------------------------------------------------------------------


def _known(operand: Operand) -> Element:
    if operand.element is not None:
        return operand.element
    name = operand.array.dtype.name
    hint = 'if it holds bf16, pass dtype="bf16"' if name == "uint16" else "or pass dtype="
    raise InvalidArgument(
        f"{name} is none of bf16, fp16, fp32, fp64, int8; convert it, {hint}", operand.argument
    )


def _common(a: Element, b: Element) -> Element:
    """As numpy promotes, but that int8 and int8 are multiplied as they are."""
    if a is b:
        return a
    small, large = sorted((a, b), key=(Element.INT8, Element.INT32, *Element).index)
    if small is Element.INT8:
        return large
    if small is Element.INT32:
        return Element.FP64
    return Element.FP32 if large is Element.FP16 else large


def _output(arguments: Arguments, element: Element, out: Optional[Operand]) -> Element:
    """The output type: named, else out's, else the input's own (int32 for int8)."""
    own = Element.INT32 if element is Element.INT8 else element
    if arguments.out_dtype is not None:
        return parse(arguments.out_dtype, "out_dtype")
    if out is None or holds(out.array.dtype, own):
        return own
    if element in (Element.BF16, Element.FP16) and holds(out.array.dtype, Element.FP32):
        return Element.FP32
    raise InvalidArgument(
        f"it is {out.array.dtype.name}; the product of {element.name.lower()} is "
        f"{own.name.lower()}" + (" or fp32" if element in (Element.BF16, Element.FP16) else ""),
        "out",
    )


def _new_type(output: Element, a: Operand) -> np.dtype:
    """Whoever passes bf16 as bits gets bits."""
    if output is Element.BF16 and holds(a.array.dtype, output):
        return a.array.dtype
    return storage(output)


# --- shapes ----------------------------------------------------------------------------------


class Shape(NamedTuple):
    """Of the result: as the daemon sees it, as the caller does, and the index that leads from the
    second to the first. Vectors have no axis of their own, and no batch none that nobody gave."""

    full: tuple[int, int, int]
    visible: tuple[int, ...]
    axes: tuple[Any, ...]


def _result_shape(a: Operand, b: Operand) -> Shape:
    (batch_a, m, k), (batch_b, rows, n) = a.array.shape, b.array.shape
    if k != rows:
        raise InvalidArgument(f"it has {rows} rows for the {k} columns of a; they must agree", "b")
    if batch_a != batch_b and 1 not in (batch_a, batch_b):
        raise InvalidArgument(
            f"a batch of {batch_b} for one of {batch_a}; they must agree, or one be 1", "b"
        )
    full = (batch_a if batch_b == 1 else batch_b, m, n)
    is_seen = (3 in (a.dimensions, b.dimensions), a.dimensions > 1, b.dimensions > 1)
    return Shape(
        full,
        tuple(size for size, seen in zip(full, is_seen) if seen),
        tuple(slice(None) if seen else None for seen in is_seen),
    )


# --- out and c -------------------------------------------------------------------------------


class Target(NamedTuple):
    """Where D goes, and how that becomes what the caller gets."""

    operand: Operand
    layout: Layout
    finish: Callable[[], Any]


def _new_target(shape: Shape, dtype: np.dtype, session: Session) -> Target:
    value = np.empty(shape.visible, dtype)
    operand = Operand("out", value, session)
    operand.array = value[shape.axes]
    return Target(operand, operand.settled(), lambda: value if shape.visible else value[()])


def _given_out(value: Any, shape: Shape, session: Session) -> Operand:
    if not isinstance(value, (np.ndarray, DeviceArray)) and not (
        hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")
    ):
        raise InvalidArgument(f"{type(value).__name__} is not an array that can be written", "out")
    out = Operand("out", value, session)
    if tuple(out.array.shape) != shape.visible:
        raise InvalidArgument(
            f"its shape is {tuple(out.array.shape)}; the result's is {shape.visible}", "out"
        )
    if isinstance(out.array, np.ndarray) and not out.array.flags.writeable:
        raise InvalidArgument("the array is read-only", "out")
    out.array = out.array[shape.axes]
    return out


def _target(
    out: Operand, value: Any, shape: Shape, output: Element, session: Session
) -> Target:
    if not holds(out.array.dtype, output):
        raise InvalidArgument(
            f"it is {out.array.dtype.name}; the result is {output.name.lower()}", "out"
        )
    layout = out.layout()
    if layout is not None and is_writable(layout, shape.full):
        return Target(out, layout, lambda: value)
    if isinstance(out.array, DeviceArray):
        raise InvalidArgument("this device view cannot be written as it lies", "out")
    there = out.array
    here = _new_target(Shape(shape.full, shape.full, (slice(None),)), there.dtype, session)

    def copy_back() -> Any:
        np.copyto(there, here.operand.array)
        return value

    return here._replace(finish=copy_back)


def _addend(
    arguments: Arguments, shape: Shape, out: Optional[Operand], session: Session
) -> Optional[Operand]:
    """C, when it is read."""
    if arguments.beta == 0:
        return None
    if arguments.c is None and out is None:
        raise InvalidArgument(f"beta is {arguments.beta} and there is neither c nor out", "c")
    c = Operand("c", arguments.out if arguments.c is None else arguments.c, session)
    if tuple(c.array.shape) != shape.visible:
        raise InvalidArgument(
            f"its shape is {tuple(c.array.shape)}; the result's is {shape.visible}", "c"
        )
    c.array = c.array[shape.axes]
    return c


def _share(one: Array, other: Array) -> bool:
    """Whether elements may be the same ones; exact where the daemon judges exactly."""
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return False
    if not np.may_share_memory(one, other):
        return False
    if one.shape[0] > 1 or other.shape[0] > 1 or one.strides[1:] != other.strides[1:]:
        return True
    return bool(np.shares_memory(one, other))


def _is_same(one: Operand, other: Operand) -> bool:
    """In exactly the same place."""
    a, b = one.array, other.array
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return False
    places = (x.__array_interface__["data"][0] for x in (a, b))
    return len({*places}) == 1 and a.strides == b.strides


# --- bias and activation ---------------------------------------------------------------------

PER_ROW, PER_COLUMN = 1, 2
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")  # by the C library's numbers


def _activation(name: Optional[str]) -> int:
    if name is None:
        return 0
    if name not in ACTIVATIONS:
        raise InvalidArgument(
            f"{name!r} is not an activation; allowed are None, {', '.join(ACTIVATIONS)}",
            "activation",
        )
    return ACTIVATIONS.index(name)


class Bias(NamedTuple):
    """One value for each row or column of the result: (batch, 1, length), side by side."""

    operand: Operand
    kind: int


def _bias(arguments: Arguments, shape: Shape, session: Session) -> Optional[Bias]:
    """What broadcasts against the result, as numpy would, and is the same along one axis."""
    if arguments.bias is None:
        return None
    operand = Operand("bias", arguments.bias, session)
    given, visible = tuple(operand.array.shape), shape.visible
    padded = (1,) * (len(visible) - len(given)) + given
    if len(padded) != len(visible) or any(
        size not in (1, whole) for size, whole in zip(padded, visible)
    ):
        raise InvalidArgument(
            f"its shape is {given}, which does not broadcast to the result's {visible}", "bias"
        )
    full = operand.array[(None,) * (len(visible) - len(given))][shape.axes]
    rows, columns = full.shape[1:]
    if rows != 1 and columns != 1:
        raise InvalidArgument(
            f"its shape is {given}: more than a value for each row or column of the result; pass "
            "it as c, with beta=1",
            "bias",
        )
    kind, length = (PER_ROW, rows) if rows != 1 else (PER_COLUMN, shape.full[2])
    if isinstance(full, DeviceArray):
        operand.array = full.mT if kind == PER_ROW else full
        if operand.array.shape[2] != length:
            raise InvalidArgument("a device array of one value is not repeated", "bias")
    else:
        line = full.swapaxes(1, 2) if kind == PER_ROW else full
        operand.array = np.broadcast_to(line, (line.shape[0], 1, length))
    return Bias(operand, kind)


def _place_bias(record: ProductRecord, bias: Bias, session: Session) -> None:
    record.bias_kind = bias.kind
    bias.operand.place(record.bias, bias.operand.settled(False), session)


# --- all together ----------------------------------------------------------------------------


class Prepared(NamedTuple):
    record: ProductRecord
    keep: tuple[Array, ...]  # until it is done
    finish: Callable[[], Any]


def _resolve_types(
    arguments: Arguments, a: Operand, b: Operand, out: Optional[Operand]
) -> tuple[Element, Element]:
    if arguments.dtype is not None:
        element = parse(arguments.dtype, "dtype")
    else:
        element = _common(_known(a), _known(b))
    a.become(element)
    b.become(element)
    return element, _output(arguments, element, out)


def prepare(arguments: Arguments, session: Session) -> Prepared:
    a, b = _input("a", arguments.a, session), _input("b", arguments.b, session, is_column=True)
    shape = _result_shape(a, b)
    out = None if arguments.out is None else _given_out(arguments.out, shape, session)
    element, output = _resolve_types(arguments, a, b, out)
    c = _addend(arguments, shape, out, session)
    if c is not None:
        c.become(output)
    if out is None:
        target = _new_target(shape, _new_type(output, a), session)
    else:
        target = _target(out, arguments.out, shape, output, session)
    d = target.operand
    bias = _bias(arguments, shape, session)
    if bias is not None:
        bias.operand.become(output)
    for operand in (a, b) if bias is None else (a, b, bias.operand):
        if _share(operand.array, d.array):
            operand.copy()
    if c is not None and _share(c.array, d.array) and not _is_same(c, d):
        c.copy(target.layout.transposed)
    record = _record(arguments, (element, output), shape, target, (a, b, c), session)
    if bias is not None:
        _place_bias(record, bias, session)
    operands = (a, b, c, d, bias.operand if bias is not None else None)
    keep = tuple(operand.array for operand in operands if operand is not None)
    return Prepared(record, keep, target.finish)


def _record(
    arguments: Arguments,
    types: tuple[Element, Element],
    shape: Shape,
    target: Target,
    inputs: tuple[Operand, Operand, Optional[Operand]],
    session: Session,
) -> ProductRecord:
    """An out whose columns lie together makes the product a column-major one: what is transposed
    to the one order is not to the other, with the same leading dimension."""
    a, b, c = inputs
    is_column_major = target.layout.transposed
    layout_a, layout_b = a.settled(), b.settled()
    batch, m, n = shape.full
    record = ProductRecord(
        size=ctypes.sizeof(ProductRecord),
        input=types[0],
        output=types[1],
        order=COLUMN_MAJOR if is_column_major else ROW_MAJOR,
        trans_a=layout_a.transposed != is_column_major,
        trans_b=layout_b.transposed != is_column_major,
        m=m,
        n=n,
        k=a.array.shape[2],
        batch=batch,
        alpha=arguments.alpha,
        beta=arguments.beta,
        activation=_activation(arguments.activation),
        deadline_seconds=arguments.deadline,
        priority=arguments.priority,
    )
    record.bias.ld = record.bias.stride = DEFAULT
    record.c.ld = record.c.stride = DEFAULT
    a.place(record.a, layout_a, session)
    b.place(record.b, layout_b, session)
    target.operand.place(record.d, target.layout, session)
    if c is not None:
        c.place(record.c, c.settled(is_column_major), session)
    return record

"""libgemmd through ctypes: structures and prototypes as in client/gemmd.h, nothing else.

ctypes.CDLL lets go of the GIL during each call.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from ctypes import POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_int64, c_size_t
from ctypes import c_uint, c_uint32, c_uint64, c_void_p

NAME = "libgemmd.so.0"
DEFAULT = -(2**63)  # GEMMD_DEFAULT
HOST, DEVICE, DEVICE_EXPORTABLE = 1, 2, 3
ROW_MAJOR, COLUMN_MAJOR = 0, 1


class ErrorRecord(ctypes.Structure):
    _fields_ = [("status", c_int), ("argument", c_char * 48), ("message", c_char * 1024)]


class InfoRecord(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("daemon", c_char * 32),
        ("device", c_char * 96),
        ("device_kind", c_char * 8),
        ("in_flight_max", c_uint32),
        ("message_max", c_uint32),
        ("ready", c_bool),
    ]


class ExportRecord(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("fd", c_int),
        ("allocation", c_uint64),
        ("device", c_char * 64),
    ]


class ImportRecord(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("fd", c_int),
        ("ipc_handle", c_void_p),
        ("offset", c_uint64),
        ("bytes", c_uint64),
        ("allocation", c_uint64),
        ("writable", c_bool),
        ("name", c_char_p),
        ("mode", c_uint),
    ]


class OperandRecord(ctypes.Structure):
    _fields_ = [
        ("buffer", c_void_p),
        ("offset", c_uint64),
        ("data", c_void_p),
        ("ld", c_int64),
        ("stride", c_int64),
    ]


class ProductRecord(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("input", c_int),
        ("output", c_int),
        ("order", c_int),
        ("trans_a", c_bool),
        ("trans_b", c_bool),
        ("m", c_int64),
        ("n", c_int64),
        ("k", c_int64),
        ("batch", c_int64),
        ("alpha", c_double),
        ("beta", c_double),
        ("a", OperandRecord),
        ("b", OperandRecord),
        ("c", OperandRecord),
        ("d", OperandRecord),
        ("deadline_seconds", c_double),
        ("priority", c_int),
        ("bias", OperandRecord),
        ("bias_kind", c_int),
        ("activation", c_int),
    ]


class ResultRecord(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("configuration", c_char * 96),
        ("epoch", c_uint32),
        ("queued_seconds", c_double),
        ("device_seconds", c_double),
        ("compile_seconds", c_double),
    ]


# name: result, arguments. Handles are plain addresses.
_PROTOTYPES = {
    "gemmd_connect": (c_int, [c_char_p, POINTER(c_void_p), POINTER(ErrorRecord)]),
    "gemmd_close": (None, [c_void_p]),
    "gemmd_last_error": (POINTER(ErrorRecord), [c_void_p]),
    "gemmd_get_info": (c_int, [c_void_p, POINTER(InfoRecord)]),
    "gemmd_buffer_create": (
        c_int,
        [c_void_p, c_int, c_uint64, c_char_p, c_uint, POINTER(c_void_p)],
    ),
    "gemmd_buffer_open": (c_int, [c_void_p, c_char_p, c_bool, POINTER(c_void_p)]),
    "gemmd_buffer_freeze": (c_int, [c_void_p]),
    "gemmd_buffer_export": (c_int, [c_void_p, POINTER(ExportRecord)]),
    "gemmd_buffer_import": (c_int, [c_void_p, POINTER(ImportRecord), POINTER(c_void_p)]),
    "gemmd_buffer_free": (None, [c_void_p]),
    "gemmd_buffer_data": (c_void_p, [c_void_p]),
    "gemmd_buffer_size": (c_uint64, [c_void_p]),
    "gemmd_buffer_write": (c_int, [c_void_p, c_uint64, c_void_p, c_uint64]),
    "gemmd_buffer_read": (c_int, [c_void_p, c_uint64, c_void_p, c_uint64]),
    "gemmd_submit": (c_int, [c_void_p, POINTER(ProductRecord), POINTER(c_uint64)]),
    "gemmd_submit_many": (
        c_int,
        [c_void_p, POINTER(ProductRecord), c_size_t, POINTER(c_uint64)],
    ),
    "gemmd_wait": (c_int, [c_void_p, c_uint64, c_double, POINTER(ResultRecord)]),
    "gemmd_fd": (c_int, [c_void_p]),
    "gemmd_status_json": (c_int, [c_void_p, POINTER(c_void_p)]),
    "gemmd_stats_json": (c_int, [c_void_p, POINTER(c_void_p)]),
    "gemmd_explain_json": (c_int, [c_void_p, POINTER(ProductRecord), POINTER(c_void_p)]),
    "gemmd_tune_json": (c_int, [c_void_p, POINTER(ProductRecord), c_uint32, POINTER(c_void_p)]),
    "gemmd_free": (None, [c_void_p]),
}


def _candidates() -> list[str]:
    """$GEMMD_LIBRARY alone when it is set; else the wheel's own, else the system's."""
    named = os.environ.get("GEMMD_LIBRARY")
    if named:
        return [named]
    return [str(pathlib.Path(__file__).with_name(NAME)), NAME]


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The library, loaded when first asked for, so that importing gemmd never fails."""
    reasons = []
    for path in _candidates():
        try:
            loaded = ctypes.CDLL(path)
        except OSError as error:
            reasons.append(str(error))
            continue
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
        return loaded
    raise OSError(
        f"{NAME} cannot be loaded ({'; '.join(reasons)}); "
        "install gemmd, or set GEMMD_LIBRARY to the library's path"
    )

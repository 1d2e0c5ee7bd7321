"""The wheel's tag: any Python 3, this machine's kind, its glibc or a later one. pyproject.toml has
the rest. Without the library in gemmd/ (see CMakeLists.txt) the package uses the system's."""

import glob
import platform

from setuptools import setup
from setuptools.dist import Distribution
from wheel.bdist_wheel import bdist_wheel

HAS_LIBRARY = bool(glob.glob("gemmd/libgemmd.so.*"))


class BinaryDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return HAS_LIBRARY


class PlatformWheel(bdist_wheel):
    def get_tag(self) -> tuple:
        if not HAS_LIBRARY:
            return "py3", "none", "any"
        name, version = platform.libc_ver()
        machine = platform.machine()
        if name != "glibc":
            return "py3", "none", f"linux_{machine}"
        return "py3", "none", f"manylinux_{version.replace('.', '_')}_{machine}"


setup(distclass=BinaryDistribution, cmdclass={"bdist_wheel": PlatformWheel})

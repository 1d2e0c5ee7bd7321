#!/bin/sh
# client_package.sh BUILD_DIRECTORY SOURCE: installs the library, moves it, and builds SOURCE
# against it by pkg-config and by find_package.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/first" --component client >/dev/null
mv "$work/first" "$work/moved"
library=$(dirname "$(find "$work/moved" -name libgemmd.so)")

export PKG_CONFIG_PATH="$library/pkgconfig"
# shellcheck disable=SC2046
cc "$2" $(pkg-config --cflags --libs gemmd) -o "$work/by_pkg_config"
LD_LIBRARY_PATH="$library" "$work/by_pkg_config"

mkdir "$work/user"
cp "$2" "$work/user/user.c"
cat >"$work/user/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(gemmd 0.1 REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE gemmd::gemmd)
END
cmake -S "$work/user" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/moved" >/dev/null
cmake --build "$work/build" >/dev/null
LD_LIBRARY_PATH="$library" "$work/build/user"

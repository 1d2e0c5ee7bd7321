# Shared by the scripts beside it: packages, NVIDIA's compiler, plain messages. Sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() {
    printf '%s\n' "$*"
}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "installing packages needs root or sudo: run as root, or install these yourself: $*"
    fi
}

# install_packages GROUP...: installs what is missing of deploy/packages.txt. Asks nothing.
install_packages() {
    local group kind names name missing=() unresolved=()
    command -v dpkg-query >/dev/null ||
        { say "not a Debian-like system: packages are left to you (deploy/packages.txt)"; return 0; }
    for group in "$@"; do
        while read -r kind names; do
            [ "$kind" = "$group" ] || continue
            unresolved+=("$names")
            for name in $names; do
                if dpkg-query -W -f '${Status}\n' "$name" 2>/dev/null | grep -q ' installed$'; then
                    unset 'unresolved[-1]'
                    break
                fi
            done
        done <"$root/deploy/packages.txt"
    done
    [ ${#unresolved[@]} -gt 0 ] || return 0

    say "installing packages: ${unresolved[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    for names in "${unresolved[@]}"; do
        for name in $names; do
            if [ -n "$(apt-cache madison "$name" 2>/dev/null)" ]; then
                missing+=("$name")
                break
            fi
        done
    done
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}" >/dev/null
}

# Major version of CUDA that this machine's driver speaks; 13 where there is no driver.
driver_cuda_major() {
    local version
    version=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: \([0-9]*\).*/\1/p' | head -n 1)
    say "${version:-13}"
}

# The toolkit's include folder when one is installed, else nothing.
toolkit_include() {
    local folder
    for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr; do
        if [ -n "$folder" ] && [ -e "$folder/include/cuda.h" ] && [ -e "$folder/include/nvrtc.h" ]; then
            say "$folder/include"
            return
        fi
    done
}

# cuda_wheels BUILD: NVIDIA's NVRTC and headers from PyPI, without installing anything into the
# system: headers to BUILD/cuda/include, libraries to BUILD/lib, where gemmd looks first. True when
# they are there afterwards.
cuda_wheels() {
    local build=$1 python=python3 pip wheels nvrtc runtime
    [ -e "$build/cuda/include/nvrtc.h" ] && [ -e "$build/cuda/include/cuda.h" ] && return 0
    command -v $python >/dev/null || return 1
    $python -m pip --version >/dev/null 2>&1 || return 1
    if [ "$(driver_cuda_major)" = 12 ]; then
        nvrtc='nvidia-cuda-nvrtc-cu12==12.9.*' runtime='nvidia-cuda-runtime-cu12==12.9.*'
    else
        nvrtc='nvidia-cuda-nvrtc==13.0.*' runtime='nvidia-cuda-runtime==13.0.*'
    fi
    say "fetching NVIDIA's runtime compiler and headers with pip (90 MB, once)"
    wheels=$(mktemp -d)
    if ! $python -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
        -d "$wheels" "$nvrtc" "$runtime" >"$wheels/log" 2>&1; then
        say "pip could not fetch them: $(tail -n 1 "$wheels/log")"
        rm -rf "$wheels"
        return 1
    fi
    mkdir -p "$build/cuda" "$build/lib"
    for pip in "$wheels"/*.whl; do
        $python -m zipfile -e "$pip" "$wheels/unpacked"
    done
    find "$wheels/unpacked" -type d -name include -exec cp -r {} "$build/cuda/" \;
    find "$wheels/unpacked" -name 'libnvrtc*.so.*' ! -name '*.alt.*' -exec cp {} "$build/lib/" \;
    rm -rf "$wheels"
    [ -e "$build/cuda/include/nvrtc.h" ]
}

# cuda_options BUILD: makes the compiler's headers available and leaves the CMake options that point
# at them in `cuda_cmake`, and what was found, in words, in `cuda_found`.
cuda_options() {
    local build=$1 include
    cuda_cmake=()
    include=$(toolkit_include)
    if [ -n "$include" ]; then
        cuda_found="the CUDA toolkit in ${include%/include}"
        cuda_cmake=("-DGEMMD_CUDA_INCLUDE=$include")
    elif cuda_wheels "$build"; then
        cuda_found="NVIDIA's NVRTC and headers from PyPI, in ${build#"$root"/}/"
        cuda_cmake=("-DGEMMD_CUDA_INCLUDE=$build/cuda/include")
    else
        cuda_found="neither a CUDA toolkit nor pip: this build serves the CPU only"
    fi
}

# bash completion for gemmctl(1); installed as share/bash-completion/completions/gemmctl

_gemmctl() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command= i
    local activations='none relu gelu gelu_tanh silu' types='bf16 fp16 fp32 fp64 int8'
    local archs='80 86 87 89 90 100 103 120'
    local common='--socket --progress --help'

    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --socket) ((i++)) ;;
        -*) ;;
        *)
            command=${COMP_WORDS[i]}
            break
            ;;
        esac
    done

    # There it is an axis, not a file.
    [ "$command$previous" != explain--bias ] || previous=--bias-per
    case $previous in
    --socket | --c | --bias | -o | --output) mapfile -t COMPREPLY < <(compgen -f -- "$current") && return ;;
    --kernels) mapfile -t COMPREPLY < <(compgen -d -- "$current") && return ;;
    --dtype) mapfile -t COMPREPLY < <(compgen -W "$types" -- "$current") && return ;;
    --out-dtype) mapfile -t COMPREPLY < <(compgen -W "$types int32" -- "$current") && return ;;
    --layout) mapfile -t COMPREPLY < <(compgen -W 'nn nt tn tt' -- "$current") && return ;;
    --arch) mapfile -t COMPREPLY < <(compgen -W "$archs" -- "$current") && return ;;
    --memory) mapfile -t COMPREPLY < <(compgen -W 'host device' -- "$current") && return ;;
    --bias-per) mapfile -t COMPREPLY < <(compgen -W 'column row' -- "$current") && return ;;
    --activation) mapfile -t COMPREPLY < <(compgen -W "$activations" -- "$current") && return ;;
    --alpha | --beta | --batch | --keep | --deadline | --priority | --max | --jobs) return ;;
    esac

    local words=
    case $command in
    '') words="gemm status stats explain tune selftest cache compile --version $common" ;;
    gemm)
        words="--output --c --alpha --beta --trans-a --trans-b --dtype --out-dtype --deadline"
        words="$words --bias --bias-per --activation"
        words="$words --priority --verify $common"
        mapfile -t COMPREPLY < <(compgen -f -X '!*.npy' -- "$current"; compgen -d -- "$current")
        ;;
    status | stats) words="--json $common" ;;
    explain) words="--dtype --out-dtype --layout --batch --bias --activation --json $common" ;;
    tune) words="--keep --dtype --out-dtype --layout --batch --json $common" ;;
    selftest) words="--quick --json --memory $common" ;;
    cache) words="list verify prewarm prune --arch --max --json $common" ;;
    compile) words="--arch --all --list --kernels --output --jobs $common" ;;
    esac
    local found
    mapfile -t found < <(compgen -W "$words" -- "$current")
    COMPREPLY+=("${found[@]}")
}

complete -o filenames -F _gemmctl gemmctl

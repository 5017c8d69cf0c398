"""The shell scripts of a vLLM export. Plain text that a person can read, copy and change."""

from services.export.vllm_serve import Command

_HEAD = """#!/bin/sh
# {title}
#   {name} MODEL [more flags of vllm serve]
# VLLM names the command, where `vllm` is not on the PATH: VLLM=/path/to/bin/vllm
set -eu
[ $# -gt 0 ] || {{ echo "{name}: which model?" >&2; exit 2; }}
here=$(cd "$(dirname "$0")" && pwd)
vllm=$(command -v "${{VLLM:-vllm}}") || {{
    echo "{name}: there is no vllm on the PATH; set VLLM" >&2
    exit 1
}}
"""
_PRELOAD = """
# Libraries that are loaded first; one that is missing is said, and serving goes on without.
for name in {names}; do
    for folder in "$(dirname "$vllm")/../lib" /usr/local/lib /usr/lib/*-linux-gnu /usr/lib64; do
        [ -e "$folder/$name" ] && break
    done
    if [ -e "$folder/$name" ]; then
        LD_PRELOAD="$folder/$name${{LD_PRELOAD:+:$LD_PRELOAD}}"
    else
        echo "{script}: $name was not found: it will be slower than what was measured" >&2
    fi
done
export LD_PRELOAD="${{LD_PRELOAD:-}}"
"""
_VERIFY = """#!/bin/sh
# What the release gains here, by vLLM's own client: the start, then the release, in turns.
#   verify.sh MODEL [flags of vllm bench serve]
# ROUNDS (2), PORT (8123) and VLLM may be set.
set -eu
[ $# -gt 0 ] || {{ echo "verify.sh: which model?" >&2; exit 2; }}
here=$(cd "$(dirname "$0")" && pwd)
model=$1
shift
port=${{PORT:-8123}}
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true' EXIT
trap 'exit 130' HUP INT TERM
measure() {{
    script=$1
    shift
    "$here/$script" "$model" --port "$port" >"$here/$script.log" 2>&1 &
    server=$!
    {path}"${{VLLM:-vllm}}" bench serve --model "$model" --port "$port" \\
        --dataset-name random --random-input-len 128 --random-output-len 64 \\
        --num-prompts {prompts} --num-warmups 4 --max-concurrency {concurrency} \\
        --ignore-eos --temperature 0 --seed "$round" --disable-tqdm \\
        --ready-check-timeout-sec 600 "$@" >"$here/client.log" 2>&1 || true
    said=$(grep "Output token throughput" "$here/client.log" | head -n 1) || {{
        echo "verify.sh: nothing was measured; see $here/client.log and $script.log" >&2
        exit 1
    }}
    echo "round $round, $script: $said"
    kill "$server"
    wait "$server" || true
    server=
}}
round=1
while [ "$round" -le "${{ROUNDS:-2}}" ]; do
    measure serve-start.sh "$@"
    measure serve.sh "$@"
    round=$((round + 1))
done
"""


def serve(name: str, title: str, made: Command, path: list[str]) -> bytes:
    """A script that runs `vllm serve`. `path` are folders of the export for the import path."""
    text = _HEAD.format(name=name, title=title)
    if path:
        folders = ":".join(f"$here/{folder}" for folder in path)
        text += f'export PYTHONPATH="{folders}${{PYTHONPATH:+:$PYTHONPATH}}"\n'
    for key, value in sorted(made.environment.items()):
        text += f'export {key}="${{{key}:-{value}}}"\n'
    if made.preload:
        text += _PRELOAD.format(names=" ".join(made.preload), script=name)
    flags = "".join(f" \\\n    {line}" for line in _pairs(made.flags))
    return f'{text}\nmodel=$1\nshift\nexec "$vllm" serve "$model"{flags} "$@"\n'.encode()


def verify(concurrency: int, path: list[str]) -> bytes:
    """A script that measures both with `vllm bench serve`."""
    folders = ":".join(f"$here/{folder}" for folder in path)
    names = f'PYTHONPATH="{folders}" ' if path else ""
    prompts = max(16, 4 * concurrency)
    return _VERIFY.format(path=names, prompts=prompts, concurrency=concurrency).encode()


def one_line(made: Command, path: list[str]) -> str:
    """The command as one would type it, for the README."""
    names = [f'PYTHONPATH="$PWD/{":$PWD/".join(path)}"'] if path else []
    names += [f"{key}={value}" for key, value in sorted(made.environment.items())]
    if made.preload:
        names.append(f"LD_PRELOAD={':'.join(f'…/{library}' for library in made.preload)}")
    return " \\\n    ".join([*names, "vllm serve MODEL", *_pairs(made.flags)])


def _pairs(flags: list[str]) -> list[str]:
    """A flag and its value on one line."""
    lines: list[str] = []
    for word in flags:
        if word.startswith("--") or not lines:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines

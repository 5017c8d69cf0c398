import socket

import pytest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workload", "sngle"], "did you mean single?"),
        (["--engine", "torchserve"], "unknown engine 'torchserve': use one of slim, fake"),
        (["--objective", "speed"], "unknown metric 'speed': use one of output_tok_s"),
        (["--objective", "output_tok_s subject to x<3"], "cannot read the limit 'x<3'"),
        (["--budget", "0"], "the budget must be more than 0 s"),
        (["--budget", ""], "cannot read the duration ''"),
        (["--model", ""], "--model is empty"),
        (["--device", "tpu"], "unknown device class 'tpu': use cpu"),
        (["--strategies", "knob"], "unknown strategy 'knob': did you mean knobs?"),
        (["--budget", "soon"], "cannot read the duration 'soon'"),
        (["--trace", "t.jsonl"], "--trace goes with --workload trace"),
        (["--workload", "trace"], "needs --trace FILE"),
        (["--min-effect", "7"], "min_effect must lie between 0 and 1"),
        (["--resume", "nothere"], "no campaign 'nothere' in runs/"),
        (["--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_a_bad_word_gives_one_line_and_leaves_nothing_behind(door, words, said):
    done = door("tune", *words)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert not (door.cwd / "runs").exists()


def test_a_trace_with_a_bad_line_is_named_with_the_line(real_door):
    trace = real_door.cwd / "bad.jsonl"
    row = '{"timestamp": 1, "input_length": 10, "output_length": 3}\n'
    trace.write_text(row + row + '{"timestamp": 2, "input_len\n')

    done = real_door("tune", "--workload", "trace", "--trace", str(trace))

    assert done.returncode == 2
    assert "bad.jsonl: trace line 3" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_named(door):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        done = door("tune", "--port", str(port))

    assert done.returncode == 2
    assert f"port {port} can't be used" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_run_folder_below_a_file_is_refused(door):
    (door.cwd / "file").write_text("")

    done = door("tune", "--run", "file/run")

    assert done.returncode == 2
    assert "cannot write the run folder file/run" in done.stderr


def test_status_without_any_run_says_how_to_start(door):
    done = door("status")

    assert done.returncode == 2
    assert done.stderr == ("perpetune: no campaign in runs/ yet; start one with: perpetune tune\n")


def test_a_second_run_on_the_same_folder_is_refused(door):
    door("tune", "--model", "any", "--run", "here")

    done = door("tune", "--model", "any", "--run", "here")

    assert done.returncode == 2
    assert "here already holds a run" in done.stderr


def test_no_command_says_what_is_missing(door):
    done = door()

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("port", ["0", "-3", "70000"])
def test_a_port_that_is_none_is_refused(door, port):
    done = door("tune", "--port", port)

    assert done.returncode == 2
    assert done.stderr == (
        f"perpetune: port {port} is none: give one from 1 to 65535, or leave it out\n"
    )


@pytest.mark.parametrize("words", [("status", "here"), ("tune", "--resume", "here")])
def test_a_run_folder_that_cannot_be_written_is_one_line_and_stays_as_it_is(door, words):
    door("tune", "--model", "any", "--run", "here")
    (door.cwd / "here" / "lock").unlink()
    (door.cwd / "here" / "lock").symlink_to("/proc/nowhere/lock")
    before = sorted(path.name for path in (door.cwd / "here").iterdir())

    done = door(*words)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "cannot write the run folder here" in done.stderr
    assert sorted(path.name for path in (door.cwd / "here").iterdir()) == before


def test_the_version_is_told(door):
    done = door("--version")

    assert done.returncode == 0
    assert done.stdout.startswith("perpetune ")

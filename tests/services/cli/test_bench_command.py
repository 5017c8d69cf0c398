import pytest


@pytest.mark.parametrize(("name", "option"), [("start", "--engine"), ("rate", "--seconds")])
def test_bench_hands_its_options_to_the_benchmark(real_door, name, option):
    done = real_door("bench", name, "--help")

    assert done.returncode == 0
    assert option in done.stdout


def test_bench_knows_its_benchmarks(door):
    done = door("bench", "speed")

    assert done.returncode == 2
    assert "invalid choice: 'speed'" in done.stderr

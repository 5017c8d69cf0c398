import subprocess


def test_the_last_release_is_exported_with_what_it_is_made_of(door):
    door("tune", "--model", "any")

    done = door("export", "last", "--to", "out")

    assert done.returncode == 0, done.stderr
    assert "is in out: see README.md there" in done.stdout
    out = door.cwd / "out"
    assert (out / "patches/series").read_text() == "0001-c-kernel-whole-decode-step.patch\n"
    text = (out / "patches/0001-c-kernel-whole-decode-step.patch").read_bytes()
    subprocess.run(["git", "apply", "-"], cwd=out / "start", input=text, check=True)
    trees = [(out / tree / "slim/model.py").read_text() for tree in ("start", "tree")]
    assert trees[0] == trees[1]
    readme = (out / "README.md").read_text()
    assert "1. threads=2" in readme
    assert "2. C kernel: whole decode step" in readme
    assert "cold trial: output_tok_s" in readme


def test_a_release_is_found_by_its_number_or_the_start_of_its_id(door):
    door("tune", "--model", "any")

    by_number = door("export", "1", "--to", "one")
    name = by_number.stdout.split()[1]

    assert door("export", name[:5], "--to", "two").returncode == 0
    one, two = ((door.cwd / folder / "export.json").read_text() for folder in ("one", "two"))
    assert one == two


def test_what_can_not_be_exported_is_said_in_one_line(door):
    (door.cwd / "full").mkdir()
    (door.cwd / "full/mine").write_text("")
    none = door("export", "last", "--to", "out")
    door("tune", "--model", "any")
    cases = {
        "no campaign here has a release yet; start one with: perpetune tune": none,
        "full is not empty: give --to a new folder": door("export", "last", "--to", "full"),
        "no release 'r00'; there are r": door("export", "r00", "--to", "out"),
        "no campaign 'x' in runs/": door("export", "last", "--to", "out", "--campaign", "x"),
        "is the start itself: there is no change": door("export", "0", "--to", "out"),
        "the following arguments are required: --to": door("export", "last"),
    }
    for said, done in cases.items():
        assert done.returncode == 2, said
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (door.cwd / "out").exists()

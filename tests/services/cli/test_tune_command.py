import json


def test_a_campaign_runs_to_its_end_and_prints_what_it_found(door):
    done = door("tune", "--model", "any")

    assert done.returncode == 0, done.stderr
    assert "release 2: C kernel: whole decode step" in done.stdout
    assert "release vs start" in done.stdout
    assert "report.html" in done.stdout
    summary = json.loads((door.cwd / "runs" / door.campaign() / "summary.json").read_text())
    assert summary["gain"]["low"] > 1.5
    assert summary["random_arm"]["estimate"] < summary["gain"]["estimate"]


def test_ctrl_c_pauses_and_names_the_command_that_resumes(door):
    code, said = door.interrupted("release 2", "tune", "--model", "search")

    name = door.campaign()
    assert code == 130
    assert f"resume with: perpetune tune --resume {name}" in said
    assert "paused" in door("status", name).stdout

    resumed = door("tune", "--resume", name)

    assert resumed.returncode == 0, resumed.stderr
    assert "finished" in door("status", name).stdout


def test_a_killed_campaign_is_resumed_with_all_it_knew(door):
    with door.started("tune", "--model", "search") as running:
        for line in running.stdout:
            if "release 2" in line:
                running.kill()
    name = door.campaign()

    status = door("status", name)
    assert status.returncode == 1
    assert "interrupted (its processes are gone; nothing is lost)" in status.stdout
    assert f"perpetune tune --resume {name}" in status.stdout

    resumed = door("tune", "--resume", name, "--budget", "2m")

    assert resumed.returncode == 0, resumed.stderr
    assert "threads=2 (c" in resumed.stdout


def test_a_seed_names_the_campaign(door):
    door("tune", "--model", "any", "--seed", "7")

    assert door.campaign() == "single-seed7"


def test_a_finished_campaign_cannot_be_resumed(door):
    door("tune", "--model", "any")

    again = door("tune", "--resume", door.campaign())

    assert again.returncode == 2
    assert "can't be resumed, it is finished" in again.stderr


def test_a_refused_campaign_gives_its_reason_in_one_line(door):
    done = door("tune", "--model", "refused")

    assert done.returncode == 2
    assert done.stderr == "perpetune: unknown model 'refused'; accepted: smollm2\n"


def test_a_room_that_keeps_ending_is_named_with_its_log(door, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "scheduler.py").write_text("raise SystemExit('no such thing')\n")
    door.env["PYTHONPATH"] = f"{broken}:{door.env['PYTHONPATH']}"

    done = door("tune", "--model", "any")

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "the scheduler can't be kept running" in done.stderr
    assert "no such thing" in done.stderr
    assert "scheduler.log" in done.stderr


def test_show_gives_the_diff_the_verdicts_and_the_evidence_of_a_candidate(door):
    door("tune", "--model", "any")

    shown = door("show", "C kernel: whole decode step").stdout

    assert "-        for layer in self.layers:" in shown
    assert "slim/csrc/step.c" in shown
    assert "slow trial" in shown
    assert "8 pairs" in shown
    assert "pair ratios: lowest" in shown


def test_show_suggests_when_there_is_no_such_candidate(door):
    door("tune", "--model", "any")

    done = door("show", "c0000nothere")

    assert done.returncode == 2
    assert "no candidate 'c0000nothere'" in done.stderr


def test_report_writes_the_files_again_from_the_ledger(door):
    door("tune", "--model", "any")
    folder = door.cwd / "runs" / door.campaign()
    before = (folder / "summary.json").read_bytes()
    (folder / "summary.json").unlink()
    (folder / "report.html").unlink()

    done = door("report")

    assert done.returncode == 0
    assert (folder / "summary.json").read_bytes() == before
    assert "<!doctype html>" in (folder / "report.html").read_text()


def test_status_of_a_running_campaign_comes_from_its_own_broker(door):
    with door.started("tune", "--model", "search") as running:
        for line in running.stdout:
            if "release 2" in line:
                break
        said = door("status").stdout
        running.terminate()
        running.communicate(timeout=60)

    assert "3 waiting" in said
    assert "searching" in said

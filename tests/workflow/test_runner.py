"""The stand-in runner does with a job what GitHub's runner does, so that what it shows of the gate can be believed."""

import textwrap

import pytest
from runner import WorkflowError, load, run_job

PINNED = "@0000000000000000000000000000000000000000"


@pytest.fixture
def run(tmp_path):
    def go(steps: str, environment=None, contexts=None, **options):
        file = tmp_path / "w.yml"
        head = "on: push\njobs:\n  j:\n    env: {WHO: job, FROM: '${{ github.actor }}'}\n    steps:\n"
        file.write_text(head + textwrap.indent(textwrap.dedent(steps), " " * 6), encoding="utf-8")
        workspace = tmp_path / "work"
        workspace.mkdir(exist_ok=True)
        known = {"github": {"actor": "mona"}, **(contexts or {})}
        return run_job(load(file), "j", workspace, tmp_path / "scratch", known, environment or {}, **options)

    return go


def test_a_failed_step_skips_the_rest_but_for_those_that_always_run(run):
    job = run("""
        - {name: one, run: 'exit 3'}
        - {name: two, run: 'echo never'}
        - {name: three, if: always(), run: 'echo ever'}
        """)
    assert [(s.name, s.outcome) for s in job.steps] == [("one", "failure"), ("two", "skipped"), ("three", "success")]
    assert job.steps[0].exit_code == 3
    assert not job.passed


def test_a_failed_pipe_counts_only_where_the_shell_says_bash(run):
    assert run("- {name: a, run: 'false | cat'}").passed
    assert not run("- {name: a, shell: bash, run: 'false | cat'}").passed


def test_the_first_failing_command_ends_its_step(run):
    job = run("""
        - name: a
          run: |
            false
            echo after
        """)
    assert "after" not in job.steps[0].output
    assert not job.passed


def test_outputs_reach_later_steps_by_environment_and_condition(run):
    job = run("""
        - {name: a, id: a, run: 'echo "x=MISSING" >> "$GITHUB_OUTPUT"'}
        - {name: b, if: "steps.a.outputs.x == 'MISSING'", env: {X: '${{ steps.a.outputs.x }}'}, run: 'echo "got $X"'}
        - {name: c, if: "steps.a.outputs.x == 'PASS'", run: 'exit 1'}
        """)
    assert job.step("b").output == "got MISSING\n"
    assert job.step("c").outcome == "skipped"


def test_the_machines_environment_wins_over_the_jobs(run):
    assert run("- {name: a, run: 'echo $WHO $FROM'}", {"WHO": "machine"}).steps[0].output == "machine mona\n"


def test_summaries_add_up_and_artifacts_are_kept_after_a_failure(run):
    job = run(f"""
        - {{name: a, run: 'mkdir out; echo hi > out/f; echo "# A" >> "$GITHUB_STEP_SUMMARY"'}}
        - {{name: b, run: 'echo "# B" >> "$GITHUB_STEP_SUMMARY"; exit 1'}}
        - uses: actions/upload-artifact{PINNED}
          if: always()
          with: {{name: kept, path: out}}
        """)
    assert job.summary == "# A\n# B\n"
    assert (job.artifacts["kept"] / "f").read_text() == "hi\n"


def test_an_artifact_that_must_exist_fails_where_it_does_not(run):
    job = run(
        f"- {{uses: actions/upload-artifact{PINNED}, with: {{name: k, path: nowhere, if-no-files-found: error}}}}"
    )
    assert not job.passed


def test_a_process_that_a_step_leaves_running_does_not_hang_the_runner(run):
    job = run("- {name: a, run: 'sleep 30 & echo $!'}", step_seconds=20)
    import os
    import signal

    os.kill(int(job.steps[0].output), signal.SIGKILL)
    assert job.passed


def test_a_step_beyond_its_time_is_a_failure(run):
    assert run("- {name: a, run: 'exec sleep 30'}", step_seconds=0.5).steps[0].outcome == "failure"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (f"- {{uses: someone/else{PINNED}}}", "someone/else"),
        ("- {name: a, shell: pwsh, run: ls}", "pwsh"),
        ("- {name: a, run: 'echo ${{ github.actor }}'}", "injection"),
    ],
)
def test_what_the_runner_does_not_know_is_refused_and_not_passed_over(run, step, said):
    with pytest.raises(WorkflowError, match=said):
        run(step)

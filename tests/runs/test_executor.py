"""The contract of executors: the same tests for tasks in turn, in processes, and on Ray."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import tasks
import torch
from sweeps import RAY, address

from calibrant import InputError
from calibrant.files import RunError
from calibrant.runs.executor import Agenda, Ended, Listener, Processes, Serial, Task
from calibrant.runs.failures import UnexpectedError, WorkerError
from calibrant.runs.ray_tune import RayTune

__all__ = ["address"]


class Heard(Listener):
    """Keeps what a listener is told."""

    def __init__(self):
        self.events, self.messages = [], []
        super().__init__(
            lambda task: self.events.append(("start", task.name)),
            lambda task, message: self.messages.append((task.name, message)),
            lambda task, ended: self.events.append((ended.state, task.name)),
        )

    __setattr__ = object.__setattr__


@pytest.fixture(params=["serial", "processes", pytest.param("ray", marks=RAY)])
def make(request):
    """Makes an executor of each kind with so many retries."""
    if request.param == "ray":
        cluster = request.getfixturevalue("address")
        return lambda retries=0: RayTune(cluster, retries=retries)
    return {"serial": lambda retries=0: Serial(retries=retries), "processes": lambda retries=0: Processes(2, retries)}[
        request.param
    ]


def test_values_messages_and_dependencies(make):
    heard = Heard()
    todo = [
        Task("last", tasks.double, 5, after=("first", "second")),
        Task("first", tasks.count, 3),
        Task("second", tasks.double, 4),
    ]
    ended = make().run(todo, heard)
    assert {name: end.value for name, end in ended.items()} == {"first": "done", "second": 8, "last": 10}
    assert list(ended)[-1] == "last"
    assert heard.messages == [("first", 0), ("first", 1), ("first", 2)]
    starts = [name for state, name in heard.events if state == "start"]
    assert starts == ["first", "second", "last"]
    assert heard.events[-2:] == [("start", "last"), ("finished", "last")]


def test_no_tasks(make):
    assert make().run([]) == {}


def test_a_failure_keeps_back_only_what_needs_it(make):
    heard = Heard()
    todo = [
        Task("bad", tasks.fail, "RunError"),
        Task("needs bad", tasks.double, 1, after=("bad",)),
        Task("needs it too", tasks.double, 1, after=("needs bad", "good")),
        Task("good", tasks.double, 1),
        Task("needs good", tasks.double, 2, after=("good",)),
    ]
    ended = make(3).run(todo, heard)
    assert {name: end.state for name, end in ended.items()} == {
        "bad": "failed",
        "needs bad": "failed",
        "needs it too": "failed",
        "good": "finished",
        "needs good": "finished",
    }
    assert isinstance(ended["bad"].error, RunError)
    assert ended["bad"].reason == "it went wrong"
    assert ended["needs bad"].reason == "bad, which it needs, did not finish"
    assert {name for state, name in heard.events if state == "start"} == {"bad", "good", "needs good"}
    assert heard.events.count(("start", "bad")) == 1  # it would only fail again


@pytest.mark.parametrize(("kind", "expected"), [("InputError", InputError), ("RunError", RunError)])
def test_the_first_failure_stops_everything_if_wanted(make, kind, expected):
    todo = [Task("bad", tasks.fail, kind), Task("after", tasks.double, 1, after=("bad",))]
    heard = Heard()
    with pytest.raises(expected, match=r"it went\s+wrong"):
        make().run(todo, heard, stop_on_failure=True)
    assert heard.events == [("start", "bad"), ("failed", "bad")]


def test_a_bug_in_a_task_keeps_its_traceback(make):
    error = make().run([Task("bad", tasks.off_by_one)])["bad"].error
    found = UnexpectedError.of(error)
    assert str(found) == "IndexError: off by one"
    assert "in off_by_one" in found.details


def test_an_unexpected_failure_is_retried(make, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    good = make(2).run([Task("flaky", tasks.fail_until, (tmp_path / "a", 3))])
    assert good["flaky"].value == "done"
    assert len(list((tmp_path / "a").iterdir())) == 3
    bad = make(1).run([Task("flaky", tasks.fail_until, (tmp_path / "b", 9))])
    assert bad["flaky"].reason == "OSError: the disk went away"
    assert len(list((tmp_path / "b").iterdir())) == 2


def test_the_listeners_own_error_is_raised(make):
    def refuse(task, ended):
        raise RunError("no space is left")

    with pytest.raises(RunError, match="no space is left"):
        make().run([Task("one", tasks.double, 1), Task("two", tasks.double, 2)], Listener(on_end=refuse))


@pytest.fixture(params=["processes", pytest.param("ray", marks=RAY)])
def remote(request):
    """As `make`, for executors with workers."""
    if request.param == "ray":
        cluster = request.getfixturevalue("address")
        return lambda retries=0: RayTune(cluster, retries=retries)
    return lambda retries=0: Processes(2, retries)


def test_a_killed_worker_is_a_failure_of_its_task_alone(remote, tmp_path):
    heard = Heard()
    todo = [
        Task("dies", tasks.die, tmp_path / "a"),
        Task("needs it", tasks.double, 1, after=("dies",)),
        *(Task(f"other {number}", tasks.double, number) for number in range(3)),
    ]
    ended = remote().run(todo, heard)
    assert [ended[f"other {number}"].value for number in range(3)] == [0, 2, 4]
    assert ended["dies"].state == ended["needs it"].state == "failed"
    assert isinstance(ended["dies"].error, WorkerError)
    assert "process" in ended["dies"].reason
    retried = remote(1).run([Task("dies", tasks.die, tmp_path / "b")])
    assert retried["dies"].value == "survived"


def test_the_first_failure_ends_what_works_beside_it(remote, tmp_path):
    lock = threading.Lock()  # a listener may hold what cannot be pickled

    def on_end(task, ended):
        with lock:
            (tmp_path / task.name).touch()

    todo = [Task("long", tasks.where, 300), Task("bad", tasks.fail, "RunError")]
    began = time.monotonic()
    with pytest.raises(RunError, match=r"it went\s+wrong"):
        remote().run(todo, Listener(on_end=on_end), stop_on_failure=True)
    assert time.monotonic() - began < 200
    assert (tmp_path / "bad").exists()


def test_tasks_run_side_by_side(remote, tmp_path):
    ended = remote().run([Task(name, tasks.meet, (tmp_path, name)) for name in "ab"])
    assert {end.state for end in ended.values()} == {"finished"}


def test_a_worker_has_one_thread_and_waits_passively_in_a_session_of_its_own():
    ended = Processes(2).run([Task(str(number), tasks.where, 0.5) for number in range(4)])
    pids, sessions, threads, policies = zip(*(end.value for end in ended.values()))
    assert len(set(pids)) == 2  # a worker serves one task after another
    assert os.getpid() not in pids
    assert sessions == pids
    assert set(threads) == {1}
    assert set(policies) == {"PASSIVE"}


def test_an_exit_code_is_told(tmp_path):
    ended = Processes(1).run([Task("dies", tasks.die, tmp_path / "a")])
    assert ended["dies"].reason == "a worker process ended with exit code -9; start again to resume"


def test_a_result_that_cannot_be_sent():
    ended = Processes(1).run([Task("x", tasks.unpicklable)])
    assert "the result of x cannot be sent" in ended["x"].reason


def test_the_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    assert Serial(threads=2).run([Task("x", tasks.where, 0)])["x"].value[2] == 2
    assert torch.get_num_threads() == before


def _raise_exit(number, frame):
    raise SystemExit(128 + number)


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_stops_workers_after_they_saved(tmp_path, number, raised):
    """As on the command line, where SIGTERM raises SystemExit."""

    def interrupt():
        while len(list(tmp_path.glob("*.started"))) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    todo = [Task(name, tasks.work_until_stopped, (name, tmp_path)) for name in "abc"]
    before = signal.signal(signal.SIGTERM, _raise_exit)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(raised):
            Processes(2).run(todo)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert sorted(path.name for path in tmp_path.glob("*.saved")) == ["a.saved", "b.saved"]
    assert not any(_alive(path) for path in tmp_path.glob("*.started"))


def test_a_failure_that_stops_everything_lets_the_others_save(tmp_path):
    todo = [
        Task("a", tasks.work_until_stopped, ("a", tmp_path)),
        Task("bad", tasks.fail_once_there, (tmp_path, "a-*.started")),
    ]
    with pytest.raises(RunError, match="the disk is full"):
        Processes(2).run(todo, stop_on_failure=True)
    assert (tmp_path / "a.saved").exists()


def test_ctrl_c_in_this_process_is_raised():
    def interrupt(argument, send):
        raise KeyboardInterrupt

    heard = Heard()
    with pytest.raises(KeyboardInterrupt):
        Serial(retries=3).run([Task("a", interrupt), Task("b", tasks.double, 1)], heard)
    assert heard.events == [("start", "a")]


def _alive(note):
    pid = int(note.stem.partition("-")[2])
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_end_with_their_parent(tmp_path):
    code = (
        "import sys, tasks\nfrom pathlib import Path\nfrom calibrant.runs.executor import Processes, Task\n"
        "if __name__ == '__main__':\n"
        "    Processes(1).run([Task('a', tasks.work_until_stopped, ('a', Path(sys.argv[1])))])\n"
    )
    script, folder = tmp_path / "script.py", tmp_path / "notes"
    folder.mkdir()
    script.write_text(code)
    path = os.pathsep.join((str(Path(tasks.__file__).parent), os.environ.get("PYTHONPATH", "")))
    parent = subprocess.Popen([sys.executable, script, folder], env={**os.environ, "PYTHONPATH": path})
    while not list(folder.glob("*.started")):
        assert parent.poll() is None
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    end = time.monotonic() + 30
    while any(map(_alive, folder.glob("*.started"))):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert not list(folder.glob("*.saved"))


def test_an_agenda_gives_tasks_in_order_and_loses_what_cannot_be_done():
    heard = Heard()
    first, second = Task("first", tasks.double), Task("second", tasks.double)
    third = Task("third", tasks.double, after=(first.name,))
    fourth = Task("fourth", tasks.double, after=(third.name,))
    agenda = Agenda([third, fourth, first, second], heard)
    assert agenda.start() is first
    assert agenda.start() is second
    assert agenda.start() is None
    agenda.end(second, Ended())
    assert agenda.waiting == [third, fourth]
    agenda.end(first, Ended(error=RunError("lost")))
    assert heard.events[-3:] == [("failed", "first"), ("failed", "third"), ("failed", "fourth")]
    assert agenda.start() is None
    assert agenda.waiting == []


def test_what_needs_a_task_that_was_stopped_early_is_lost():
    agenda = Agenda([Task("a", tasks.double), Task("b", tasks.double, after=("a",))], Listener())
    agenda.end(agenda.start(), Ended(stopped=3))
    assert [end.state for end in agenda.ended.values()] == ["stopped", "failed"]


@pytest.mark.parametrize(
    ("after", "match"),
    [
        ({"a": ("b",), "b": ("a",)}, "wait for each other"),
        ({"a": ("c",)}, "'c', which is not among"),
        ({}, "different"),
    ],
)
def test_tasks_that_make_no_order_are_refused(after, match):
    todo = [Task(name, tasks.double, 1, needed) for name, needed in after.items()] or [Task("a", tasks.double)] * 2
    with pytest.raises(ValueError, match=match):
        Serial().run(todo)

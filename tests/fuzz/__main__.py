"""Fuzz every reader of files for a limited time: `make fuzz`, or `python tests/fuzz [READER ...] --seconds 300`.

Inputs are damaged copies of the files in `corpus/`, drawn by Hypothesis and, where atheris is installed, bred by it
from the code that they reach. A reader may return a result or raise one of our sentences. Another exception, more
memory than `--memory`, or an input that takes more than `--hang` seconds of the processor or sleeps that long, is a
failure: the input is kept, and its path is printed. A slow machine makes none, and tries as many inputs: `--seconds`
are those of the processor that are spent on inputs, in equal parts for every reader.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import math
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

try:
    import atheris
except ImportError:
    atheris = None

# Imported before what it leads to, because atheris watches the modules that are imported under it.
watched = atheris.instrument_imports(include=["calibrant"]) if atheris else contextlib.nullcontext()
with contextlib.redirect_stderr(io.StringIO()), watched:
    from readers import READERS, SENTENCES, Reader

import hypothesis
import scipy.optimize
import scipy.stats  # noqa: F401  (imported once, before processes are forked; pyarrow is not, as it brings threads)
import sklearn.isotonic  # noqa: F401
from hypothesis import strategies as st
from mutations import mutate
from watching import wait


@dataclass
class Count:
    """What came of the inputs so far; `faults` are of one kind each, with the path of the first input."""

    calls: int = 0
    results: int = 0
    sentences: int = 0
    longest: float = 0.0  # seconds of the processor that one input took
    faults: dict[str, str] = field(default_factory=dict)


class Trial:
    """Gives one reader one input after the other, and keeps the count in a file that outlives a crash.

    The process ends with the first input after it has used the processor for `until` seconds.
    """

    def __init__(self, reader: Reader, folder: Path, failures: Path) -> None:
        self.reader, self.folder, self.failures = reader, folder, failures
        self.input, self.counted = folder / f"input{reader.suffix}", folder / "count.json"
        self.count = Count(**json.loads(self.counted.read_text())) if self.counted.exists() else Count()
        self.until = math.inf

    def __call__(self, content: bytes) -> None:
        if time.process_time() > self.until:
            self.save()
            os._exit(0)
        self.input.write_bytes(content)
        self.count.calls += 1
        began = time.process_time()
        try:
            self.reader.read(self.input)
            self.count.results += 1
        except SENTENCES:
            self.count.sentences += 1
        except Exception as error:  # any other is what we look for
            self.keep(_where(error), traceback.format_exc())
        self.count.longest = max(self.count.longest, time.process_time() - began)
        if self.count.calls % 20 == 0:
            self.save()

    def keep(self, kind: str, detail: str) -> None:
        """Keep the first input of every kind of failure."""
        if kind in self.count.faults:
            return
        name = hashlib.sha256(self.input.read_bytes()).hexdigest()[:12]
        kept = self.failures / f"{self.reader.name}-{name}{self.reader.suffix}"
        shutil.copy(self.input, kept)
        kept.with_name(f"{kept.name}.txt").write_text(f"{kind}\n{detail}")
        self.count.faults[kind] = str(kept)
        self.save()

    def save(self) -> None:
        """For the process that waits for this one."""
        self.counted.write_text(json.dumps(asdict(self.count)))


def _where(error: BaseException) -> str:
    """The kind of error and the last line of ours that it came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/calibrant/" in frame.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "the reader"
    return f"{type(error).__name__} at {place}"


def draw(trial: Callable[[bytes], None], seeds: list[bytes], seed: int, rounds: int = sys.maxsize) -> None:
    """Inputs drawn by Hypothesis, a hundred per round."""
    either = st.tuples(st.sampled_from(seeds), st.sampled_from(seeds), st.integers(0, 2**64))
    damaged = either.map(lambda three: mutate(three[0], Random(three[2]), also=three[1]))

    @hypothesis.settings(
        max_examples=100, deadline=None, database=None, phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(st.one_of(damaged, damaged, damaged, st.binary(max_size=300), st.text().map(str.encode)))
    def some(content: bytes) -> None:
        trial(content)

    for number in range(rounds):
        hypothesis.seed(seed + number)(some)()


def breed(trial: Trial, seeds: list[bytes], seed: int) -> None:
    """Inputs bred by atheris from those that reach new code; ends the process."""
    corpus = trial.folder / "bred"
    if not corpus.exists():
        corpus.mkdir()
        for number, content in enumerate(seeds):
            (corpus / str(number)).write_bytes(content)

    def altered(content: bytes, limit: int, number: int) -> bytes:
        return mutate(content, Random(number))[:limit]

    options = [f"-seed={seed + 1}", "-max_len=200000", "-rss_limit_mb=0"]
    # Who waits for this process ends what hangs; libFuzzer's own limit takes a busy machine for a hang.
    options += ["-timeout=100000", "-verbosity=0", "-print_final_stats=0", f"-artifact_prefix={trial.folder}/"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], trial, custom_mutator=altered)
    try:
        atheris.Fuzz()
    finally:
        trial.save()


ENGINES: dict[str, Callable[[Any, list[bytes], int], None]] = {
    "hypothesis": draw,
    **({"atheris": breed} if atheris else {}),
}


@dataclass(frozen=True)
class Limits:
    """Of one input: bytes of memory beyond what the modules need, and seconds of the processor."""

    memory: int
    hang: float


def spend(reader: Reader, engine: str, seconds: float, seed: int, failures: Path, limits: Limits) -> Count:
    """Fuzz `reader` for `seconds` of the processor, in processes of their own; one that dies or hangs is replaced."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder, left = Path(name), seconds
        while left > 0:
            before, pid = _used_by_children(), os.fork()
            if pid == 0:
                _child(Trial(reader, folder, failures), engine, left, seed, limits)
            ended = wait(pid, folder / f"input{reader.suffix}", limits.hang)
            if ended is None:
                break
            Trial(reader, folder, failures).keep(ended, (folder / "printed.txt").read_text(errors="replace")[-3000:])
            left -= _used_by_children() - before
            seed += 1000
        return Trial(reader, folder, failures).count


def _used_by_children() -> float:
    """The seconds of the processor that all processes have used that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _child(trial: Trial, engine: str, seconds: float, seed: int, limits: Limits) -> None:
    """Never returns."""
    os.chdir(trial.folder)
    with (trial.folder / "printed.txt").open("ab") as printed:
        for number in (1, 2):
            os.dup2(printed.fileno(), number)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + limits.memory,) * 2)
    warnings.simplefilter("ignore")
    code = 1
    for path in trial.reader.seeds:
        trial.reader.read(Path(shutil.copy(path, trial.input)))  # what is imported late does not count
    trial.until = time.process_time() + seconds
    try:
        ENGINES[engine](trial, [path.read_bytes() for path in trial.reader.seeds], seed)
        code = 0
    except SystemExit as error:  # as atheris ends
        code = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
    trial.save()
    os._exit(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"of {', '.join(READERS)}; default: all")
    parser.add_argument("--seconds", type=float, default=300, help="of the processor, in all")
    parser.add_argument("--hang", type=float, default=20, help="seconds of the processor per input")
    parser.add_argument("--memory", type=float, default=1.0, help="GB that one input may take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="folder of inputs that failed")
    parser.add_argument("--once", type=Path, help="give this one file to the one READER, and show what happens")
    options = parser.parse_args()
    unknown = sorted({*options.readers} - {*READERS})
    if unknown:
        parser.error(f"there is no reader {unknown[0]}; choose from {', '.join(READERS)}")
    if options.once is not None:
        print(_once(READERS[options.readers[0]], options.once))
        return
    sys.exit(_all(options))


def _once(reader: Reader, path: Path) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return reader.read(Path(shutil.copy(path, Path(folder) / f"input{reader.suffix}")))


def _all(options: argparse.Namespace) -> int:
    """Fuzz all readers that were asked for, and print what came of it; 1 if any failed."""
    wanted = [READERS[name] for name in options.readers or READERS]
    if atheris is None:
        print("atheris is not installed: inputs are drawn by Hypothesis alone")
    options.failures.mkdir(parents=True, exist_ok=True)
    draw(lambda content: None, [b"{}"], 0, rounds=1)  # Hypothesis prepares its tables once, before processes are forked
    share, limits = options.seconds / len(wanted) / len(ENGINES), Limits(round(options.memory * 2**30), options.hang)
    total = Count()
    for reader in wanted:
        for engine in ENGINES:
            count = spend(reader, engine, share, options.seed, options.failures.absolute(), limits)
            print(f"{reader.name:20} {engine:10} {count.calls:7} inputs: {count.results:6} results,"
                  f" {count.sentences:7} sentences, {len(count.faults)} kinds of failure,"
                  f" at most {count.longest:.1f} s each", flush=True)  # fmt: skip
            for kind, path in count.faults.items():
                print(f"  {kind}: {path}", flush=True)
            total.calls, total.results = total.calls + count.calls, total.results + count.results
            total.sentences, total.longest = total.sentences + count.sentences, max(total.longest, count.longest)
            total.faults |= {f"{reader.name}: {kind}": path for kind, path in count.faults.items()}
    if not total.calls:
        raise SystemExit("no input was tried: give more --seconds")
    print(f"{total.calls} inputs to {len(wanted)} readers: {total.results} results, {total.sentences} sentences,"
          f" {len(total.faults)} kinds of failure; at most {total.longest:.1f} s of the processor each")  # fmt: skip
    return 1 if total.faults else 0


if __name__ == "__main__":
    main()

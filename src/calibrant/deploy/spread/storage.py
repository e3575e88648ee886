"""A folder on a disk or in an object store, whose files appear whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant import InputError
from calibrant.data import DataError
from calibrant.files import RunError, write_bytes


@dataclass(frozen=True)
class Folder:
    """The folder `path` of a pyarrow file system; can be sent to other processes."""

    filesystem: Any
    path: str
    local: bool

    @classmethod
    def open(cls, out: str) -> Folder:
        """A local path or a URI (s3://, gs://, file://); a local folder is made if it is not there."""
        import pyarrow as pa
        from pyarrow import fs

        from calibrant.files import writable

        if "://" not in out:
            path = Path(out).expanduser().absolute()
            if path.is_file() or path.suffix.lower() == ".csv":
                raise InputError(f"out must be a folder for Parquet files with engine ray, not the file {out}")
            return cls(fs.LocalFileSystem(), str(writable(path)), local=True)
        try:
            filesystem, path_text = fs.FileSystem.from_uri(out)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"out {out} cannot be opened: {str(error).splitlines()[0]}") from None
        local = filesystem.type_name == "local"
        return cls(filesystem, str(writable(Path(path_text))) if local else path_text.rstrip("/"), local)

    def names(self, inner: str = "", *, recursive: bool = False) -> set[str]:
        """The names of the files in the folder `inner` of it; none if it is not there."""
        from pyarrow import fs

        where = f"{self.path}/{inner}".rstrip("/")
        listed = self.filesystem.get_file_info(fs.FileSelector(where, allow_not_found=True, recursive=recursive))
        return {info.base_name for info in listed if info.is_file}

    def read(self, name: str) -> bytes | None:
        """The content of the file `name`; None if there is none."""
        try:
            with self.filesystem.open_input_stream(f"{self.path}/{name}") as stream:
                content: bytes = stream.read()
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write the file `name`. An object store shows an object when all of it has arrived; a disk needs a rename."""
        target = f"{self.path}/{name}"
        if self.local:
            write_bytes(Path(target), content, durable=False)
            return
        try:
            with self.filesystem.open_output_stream(target) as stream:
                stream.write(content)
        except OSError as error:
            raise RunError(f"{target} cannot be written: {str(error).splitlines()[0]}") from None

    def remove(self, inner: str) -> None:
        """Remove the folder `inner` of it and all that it holds."""
        from pyarrow import fs

        if self.filesystem.get_file_info(f"{self.path}/{inner}").type == fs.FileType.Directory:
            self.filesystem.delete_dir(f"{self.path}/{inner}")

    def __str__(self) -> str:
        return self.path

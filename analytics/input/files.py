"""Files on whatever file system Spark was given: the local disk, HDFS, an object store.

Through Hadoop's own FileSystem, or where Spark is behind Spark Connect through pyarrow's, from here.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from pyspark.sql import SparkSession

from ..errors import AnalyticsError
from ..spark.connect import context


class Footer(NamedTuple):
    """What the end of a Parquet file tells."""

    rows: int
    #: name -> type as Spark writes it
    columns: dict[str, str]
    #: of the whole file
    bytes: int


#: How Parquet files begin and end.
_MAGIC = b"PAR1"
#: How a path begins that names its file system.
SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")


def here(path: str) -> Path | None:
    """The path, where it is surely on this machine: it names no file system, and nobody has told Hadoop of another one."""
    told = any(os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_GATEWAY_PORT"))
    return None if told or SCHEME.match(path) else Path(path)


class Files:
    def __init__(self, spark: SparkSession | None = None) -> None:
        """Without ``spark``: what is ``here`` can be listed."""
        driver = None if spark is None else context(spark)
        if driver is None:
            return
        # Whole names: Java would look for each package on the way as if it were a class, in every one of Spark's archives.
        java = driver._jvm
        self._path: Any = getattr(java, "org.apache.hadoop.fs.Path")
        self._io: Any = getattr(java, "org.apache.commons.io.IOUtils")
        self._copies: Any = getattr(java, "org.apache.hadoop.fs.FileUtil")
        self._configuration: Any = driver._jsc.hadoopConfiguration()
        self._hadoop = str(getattr(java, "org.apache.hadoop.util.VersionInfo").getVersion())

    def _open(self, path: str) -> tuple[Any, Any]:
        """(file system, path). Raises AnalyticsError no-connector."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        hadoop_path = self._path(path)
        try:
            file_system = hadoop_path.getFileSystem(self._configuration)
        except Py4JJavaError as error:
            if re.search("ClassNotFoundException|No FileSystem for scheme", str(error)) is None:
                raise
            raise _no_connector(path, self._hadoop) from error
        # Checksum files beside every local file would make an edited CSV unreadable.
        file_system.setWriteChecksum(False)
        return file_system, hadoop_path

    def names(self, path: str) -> list[str]:
        """What lies in a directory; empty where it does not exist."""
        return sorted(self.ages_s(path))

    def ages_s(self, path: str) -> dict[str, float]:
        """name -> seconds since it was changed, of what lies in a directory; empty where it does not exist."""
        file_system, hadoop_path = self._open(path)
        if not file_system.exists(hadoop_path):
            return {}
        found = file_system.listStatus(hadoop_path)
        return {str(status.getPath().getName()): time.time() - status.getModificationTime() / 1000 for status in found}

    def listing(self, path: str) -> list[tuple[str, bool]] | None:
        """(name, whether it is a directory) of what lies in a directory, by name; None where there is no such directory."""
        if (place := here(path)) is not None:
            return sorted((each.name, each.is_dir()) for each in place.iterdir()) if place.is_dir() else None
        file_system, hadoop_path = self._open(path)
        if not file_system.exists(hadoop_path) or not file_system.getFileStatus(hadoop_path).isDirectory():
            return None
        return sorted((status.getPath().getName(), bool(status.isDirectory())) for status in file_system.listStatus(hadoop_path))

    def parquet_files(self, path: str) -> list[str]:
        """The Parquet files of a table, also those in its ``day=`` directories; other names are no part of an export."""
        names: list[str] = []
        for name, is_directory in self.listing(path) or []:
            if is_directory and "=" in name:
                names += self.parquet_files(f"{path}/{name}")
            elif not is_directory and name.endswith(".parquet") and not name.startswith((".", "_")):
                names.append(f"{path}/{name}")
        return names

    def parquet_footer(self, path: str) -> Footer:
        """From the end of the file alone. Raises Py4JError, OSError or ValueError where that is damaged."""
        import pyarrow.parquet as pq

        if (place := here(path)) is not None:
            metadata, size = pq.read_metadata(place), place.stat().st_size
        else:
            end, size = self._end(path, 1 << 16)
            metadata = pq.read_metadata(BytesIO(_MAGIC + end))
        return _footer_of(metadata, size)

    def _end(self, path: str, most: int) -> tuple[bytes, int]:
        """What begins with a Parquet file's footer, of ``most`` bytes or of as many as that says it takes; and the file's size."""
        file_system, hadoop_path = self._open(path)
        size = int(file_system.getFileStatus(hadoop_path).getLen())
        stream = file_system.open(hadoop_path)
        try:
            stream.seek(max(size - most, 0))
            end = bytes(self._io.toByteArray(stream))
        finally:
            stream.close()
        length = int.from_bytes(end[-8:-4], "little") + 8
        return (end[-length:], size) if end[-4:] != _MAGIC or length <= len(end) or len(end) == size else self._end(path, length)

    def read_text(self, path: str) -> str:
        file_system, hadoop_path = self._open(path)
        stream = file_system.open(hadoop_path)
        try:
            return str(self._io.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_text(self, path: str, text: str) -> None:
        """Replaces what was there."""
        file_system, hadoop_path = self._open(path)
        stream = file_system.create(hadoop_path, True)
        try:
            stream.write(bytearray(text, "utf-8"))
        finally:
            stream.close()

    def put(self, local: str, path: str) -> None:
        """Move a file of this machine to ``path``, replacing what was there.

        As a stream: connectors have ways of their own for local files, which not every store that speaks S3 understands. To a disk of
        this machine without Java, which would start a process for the rights of each file and directory. Raises OSError there.
        """
        file_system, hadoop_path = self._open(path)
        if file_system.getScheme() == "file":
            place = Path(hadoop_path.toUri().getPath())
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(local, place)
            return
        here, source = self._open(f"file:{local}")
        self._copies.copy(here, source, file_system, hadoop_path, True, True, self._configuration)

    def publish(self, path: str, text: str) -> bool:
        """Make a file that appears whole, or not at all; false where there is one of this name, which stays.

        Of two that try at once one succeeds, where the file system renames in one step: on disks and HDFS; object stores only look first.
        """
        directory, _, name = path.rpartition("/")
        scratch = f"{directory}/.{name}.{uuid4().hex}"
        self.write_text(scratch, text)
        file_system, scratch_path = self._open(scratch)
        try:
            here = file_system.resolvePath(scratch_path).toUri()
            if here.getScheme() != "file":
                return name not in self.names(directory) and bool(file_system.rename(scratch_path, self._path(path)))
            # A rename would replace what is there.
            os.link(here.getPath(), Path(here.getPath()).with_name(name))
        except FileExistsError:
            return False
        finally:
            self.remove(scratch)
        return True

    def remove(self, path: str) -> None:
        """A file or a whole directory; nothing where there is none."""
        file_system, hadoop_path = self._open(path)
        file_system.delete(hadoop_path, True)


class ArrowFiles(Files):
    """The same by pyarrow, without a Java: what Spark's servers call ``s3a:`` is ``s3:`` here."""

    def _at(self, path: str) -> tuple[Any, str]:
        """(file system, path there). Raises AnalyticsError no-connector."""
        from pyarrow import ArrowInvalid
        from pyarrow.fs import FileSystem, LocalFileSystem

        if SCHEME.match(path) is None:
            return LocalFileSystem(), path
        try:
            return tuple(FileSystem.from_uri(re.sub("^s3[an]:", "s3:", path)))
        except ArrowInvalid as error:
            fix = "Name a path of this machine's, or of file:, s3a:, gs:, abfs: or hdfs:."
            raise AnalyticsError("no-connector", f"pyarrow cannot reach {path}.", fix) from error

    def _to_make(self, path: str) -> tuple[Any, str]:
        """As ``_at``; its directory is there."""
        file_system, place = self._at(path)
        file_system.create_dir(place.rpartition("/")[0] or ".", recursive=True)
        return file_system, place

    def _infos(self, path: str) -> list[Any]:
        from pyarrow.fs import FileSelector

        file_system, place = self._at(path)
        return sorted(file_system.get_file_info(FileSelector(place, allow_not_found=True)), key=lambda info: info.base_name)

    def ages_s(self, path: str) -> dict[str, float]:
        return {str(info.base_name): time.time() - (info.mtime_ns or 0) / 1e9 for info in self._infos(path)}

    def listing(self, path: str) -> list[tuple[str, bool]] | None:
        from pyarrow.fs import FileType

        file_system, place = self._at(path)
        if file_system.get_file_info(place).type != FileType.Directory:
            return None
        return [(str(info.base_name), info.type == FileType.Directory) for info in self._infos(path)]

    def parquet_footer(self, path: str) -> Footer:
        import pyarrow.parquet as pq

        file_system, place = self._at(path)
        with file_system.open_input_file(place) as file:
            return _footer_of(pq.read_metadata(file), file.size())

    def read_text(self, path: str) -> str:
        file_system, place = self._at(path)
        with file_system.open_input_stream(place) as stream:
            return str(stream.read().decode("utf-8"))

    def write_text(self, path: str, text: str) -> None:
        file_system, place = self._to_make(path)
        with file_system.open_output_stream(place) as stream:
            stream.write(text.encode())

    def put(self, local: str, path: str) -> None:
        from pyarrow.fs import LocalFileSystem, copy_files

        file_system, place = self._to_make(path)
        copy_files(local, place, LocalFileSystem(), file_system)

    def publish(self, path: str, text: str) -> bool:
        from pyarrow.fs import LocalFileSystem

        file_system, place = self._at(path)
        if not isinstance(file_system, LocalFileSystem):
            if path.rpartition("/")[2] in self.names(path.rpartition("/")[0]):
                return False
            self.write_text(path, text)
            return True
        scratch = f"{place}.{uuid4().hex}"
        self.write_text(scratch, text)
        try:
            os.link(scratch, place)
        except FileExistsError:
            return False
        finally:
            self.remove(scratch)
        return True

    def remove(self, path: str) -> None:
        from pyarrow.fs import FileType

        file_system, place = self._at(path)
        kind = file_system.get_file_info(place).type
        if kind == FileType.Directory:
            file_system.delete_dir(place)
        elif kind != FileType.NotFound:
            file_system.delete_file(place)


def files_of(spark: SparkSession | None) -> Files:
    return Files(spark) if spark is None or context(spark) is not None else ArrowFiles()


def _footer_of(metadata: Any, size: int) -> Footer:
    return Footer(metadata.num_rows, {each.name: type_name(each.type) for each in metadata.schema.to_arrow_schema()}, size)


def _no_connector(path: str, hadoop: str) -> AnalyticsError:
    scheme = path.partition(":")[0]
    package = {"s3a": f"org.apache.hadoop:hadoop-aws:{hadoop}", "abfs": f"org.apache.hadoop:hadoop-azure:{hadoop}"}.get(scheme)
    line = f"spark.jars.packages {package or 'GROUP:NAME:VERSION'}"
    return AnalyticsError(
        "no-connector",
        f"Spark has no connector for {scheme}:, so {path} cannot be reached.",
        f"Put the line `{line}` into spark-defaults.conf and name its directory in SPARK_CONF_DIR.",
    )


def type_name(kind: Any) -> str:
    """A type of pyarrow's as Spark SQL writes it."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{each.name}:{type_name(each.type)}' for each in kind)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    return {"int64": "bigint", "int32": "int", "bool": "boolean"}.get(str(kind), str(kind))

"""Files on whatever file system Spark was given: the local disk, HDFS, an object store. Through Hadoop's own FileSystem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Files:
    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def _open(self, path: str) -> tuple[Any, Any]:
        """(file system, path)."""
        hadoop_path = self._jvm.org.apache.hadoop.fs.Path(path)
        file_system = hadoop_path.getFileSystem(self._configuration)
        # Checksum files beside every local file would make an edited CSV unreadable.
        file_system.setWriteChecksum(False)
        return file_system, hadoop_path

    def exists(self, path: str) -> bool:
        file_system, hadoop_path = self._open(path)
        return bool(file_system.exists(hadoop_path))

    def names(self, path: str) -> list[str]:
        """What lies in a directory; empty where it does not exist."""
        file_system, hadoop_path = self._open(path)
        if not file_system.exists(hadoop_path):
            return []
        return sorted(status.getPath().getName() for status in file_system.listStatus(hadoop_path))

    def read_text(self, path: str) -> str:
        file_system, hadoop_path = self._open(path)
        stream = file_system.open(hadoop_path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
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

    def move(self, source: str, target: str) -> None:
        """Replaces ``target``."""
        file_system, source_path = self._open(source)
        target_path = self._jvm.org.apache.hadoop.fs.Path(target)
        file_system.delete(target_path, False)
        if not file_system.rename(source_path, target_path):
            raise OSError(f"{source} could not be renamed to {target}")

    def remove(self, path: str) -> None:
        """A file or a whole directory; nothing where there is none."""
        file_system, hadoop_path = self._open(path)
        file_system.delete(hadoop_path, True)

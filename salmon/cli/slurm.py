"""Implement `salmon slurm`, which prints the batch file of workers on a SLURM cluster."""

import shlex
import sys
from typing import Annotated

import typer

from salmon.errors import StartError

_BATCH = """\
#!/bin/bash
#SBATCH --job-name=salmon
#SBATCH --ntasks={workers}
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu={memory_mb}M
#SBATCH --time={hours}:00:00
#SBATCH --output=salmon-%j.log
# Submit it with `sbatch`, in a directory with the folder {folder} that `salmon cluster certificates` has written.
# The job dials out to {to}, where `salmon cluster wait` runs; nothing dials in. When it ends, learning goes on there.
set -eu
cd "${{SLURM_SUBMIT_DIR:-.}}"
exec {python} -m salmon cluster join {to} --tls {folder} --launch srun
"""


def slurm(
    to: Annotated[str, typer.Argument(help="Where `salmon cluster wait` listens: lab.example.edu:8787.")],
    workers: Annotated[int, typer.Option(help="Worker processes, each a task of one core.", min=1)] = 8,
    hours: Annotated[int, typer.Option(help="How long the job may run.", min=1)] = 24,
    memory_gb: Annotated[float, typer.Option(help="Memory of each worker.", min=0.5)] = 2.0,
    tls: Annotated[str, typer.Option(help="The folder with the certificates, on the cluster.")] = "cluster-tls",
    python: Annotated[
        str, typer.Option(help="The Python on the cluster in which Salmon is installed, in the same version as here.")
    ] = "python3",
) -> None:
    """Print the batch file of a SLURM job whose workers join the learning process from within the cluster.

    Example: salmon slurm lab.example.edu:8787 --workers 32 > salmon.sbatch
    """
    host, _, port = to.rpartition(":")
    if not host or not port.isdigit():
        raise StartError(f"{to!r} is no host with a port.", hint="Example: lab.example.edu:8787")
    text = _BATCH.format(
        workers=workers,
        memory_mb=round(memory_gb * 1024),
        hours=hours,
        to=shlex.quote(to),
        folder=shlex.quote(tls),
        python=shlex.quote(python),
    )
    sys.stdout.write(text)

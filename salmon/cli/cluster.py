"""Implement `salmon cluster`: workers of another machine or a cluster that dial out to one
TLS port, and need no port open.

Dask's scheduler connects to its workers as well as they to it, so it runs among them. What has to cross the border is
the one connection between the learning process and that scheduler, and it is made the other way round:
`salmon cluster join` runs beside the scheduler and keeps a few connections to `salmon cluster wait` in reserve. When
the learning process connects to the loopback port there, one of them is taken, and bytes go through it both ways. Both
ends prove by a certificate that they belong together; the scheduler's own TLS goes through unread.
"""

import asyncio
import datetime as dt
import json
import os
import shlex
import signal
import ssl
import sys
import tempfile
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from salmon.cli.data_directory import write_private_or_stop
from salmon.errors import StartError

#: Connections that `join` keeps in reserve. Dask needs two for a client, and a new one now and then.
RESERVE = 3
#: How often a reserved connection is told that the other end lives, and after which silence it is given up.
PULSE_SECONDS = 10.0
SILENT_SECONDS = 35.0
#: How long somebody who connects waits for a reserved connection, and `join` before it dials again.
WAIT_SECONDS = 10.0
_AGAIN_SECONDS = 2.0
_PULSE, _BEGIN = b"\0", b"\1"
_BLOCK = 1 << 16
_YEARS = 5

TlsOption = Annotated[
    Path, typer.Option("--tls", help="The folder with the files that `salmon cluster certificates` has written.")
]

cluster = typer.Typer(
    help="Workers on another machine, or on a cluster, that dial out to one TLS port.", no_args_is_help=True
)


@cluster.command()
def certificates(
    folder: Annotated[Path, typer.Argument(help="A new folder for them.")] = Path("cluster-tls"),
) -> None:
    """Write an authority of its own, and a certificate with its key that both ends use. Copy the folder to the cluster.

    Example: salmon cluster certificates cluster-tls
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (folder / "key.pem").exists():
        raise StartError(f"There are certificates in {folder} already.", hint="Name another folder, or use these.")
    for name, text in make_certificates().items():
        write_private_or_stop(folder / name, text)
    print(
        f"Written: {folder}. For the learning process:\n"
        f"  SALMON_SCHEDULER=tls://127.0.0.1:8786\n"
        f"  SALMON_SCHEDULER_CA={folder.resolve()}/authority.pem\n"
        f"  SALMON_SCHEDULER_CERT={folder.resolve()}/certificate.pem\n"
        f"  SALMON_SCHEDULER_KEY={folder.resolve()}/key.pem"
    )


@cluster.command()
def wait(
    tls: TlsOption = Path("cluster-tls"),
    host: Annotated[str, typer.Option(help="The address that the cluster dials.")] = "0.0.0.0",  # noqa: S104 - certificates are required
    port: Annotated[int, typer.Option(help="The port that the cluster dials; 0 selects a free one.", min=0)] = 8787,
    inside: Annotated[int, typer.Option(help="The port for the learning process on this machine.", min=0)] = 8786,
) -> None:
    """Take the calls of a cluster, on the machine where the learning process runs.

    Example: salmon cluster wait --port 8787
    """
    asyncio.run(_wait(_context(tls, server=True), host, port, inside))


@cluster.command()
def join(
    to: Annotated[str, typer.Argument(help="Where `salmon cluster wait` listens: lab.example.edu:8787.")],
    tls: TlsOption = Path("cluster-tls"),
    workers: Annotated[int, typer.Option(help="Worker processes on this machine.", min=1)] = 1,
    launch: Annotated[
        str, typer.Option(help="A command that starts one worker on each task, such as srun, instead of those.")
    ] = "",
) -> None:
    """Start a scheduler and workers here, and dial out to the machine with the learning process until it is stopped.

    Example: salmon cluster join lab.example.edu:8787 --workers 8
    """
    host, _, port = to.rpartition(":")
    if not host or not port.isdigit():
        raise StartError(f"{to!r} is no host with a port.", hint="Example: lab.example.edu:8787")
    context = _context(tls, server=False)
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(_join(context, host, int(port), tls, workers, shlex.split(launch)))


def _context(folder: Path, *, server: bool) -> ssl.SSLContext:
    """Return the TLS of one end, which takes only the other end's certificate: the authority has signed no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(folder / "authority.pem")
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    except (OSError, ssl.SSLError) as error:
        raise StartError(
            f"The certificates in {folder} cannot be used: {error.strerror or error}.",
            hint="Write them with `salmon cluster certificates`, and copy the folder to both machines.",
        ) from error
    return context


async def _wait(context: ssl.SSLContext, host: str, port: int, inside: int) -> None:
    reserve: asyncio.Queue[tuple[StreamReader, StreamWriter, asyncio.Task[None]]] = asyncio.Queue()

    async def take_call(reader: StreamReader, writer: StreamWriter) -> None:
        await reserve.put((reader, writer, asyncio.create_task(_pulse(writer))))

    async def connect(reader: StreamReader, writer: StreamWriter) -> None:
        """Give somebody on this machine one of the reserved connections."""
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    far_reader, far_writer, pulse = await reserve.get()
                    pulse.cancel()
                    with suppress(OSError):
                        far_writer.write(_BEGIN)
                        if await far_reader.read(1) == _BEGIN:
                            break
                    far_writer.close()
            await _pass_both_ways(reader, writer, far_reader, far_writer)
            return
        writer.close()

    outer = await asyncio.start_server(take_call, host, port, ssl=context)
    inner = await asyncio.start_server(connect, "127.0.0.1", inside)
    print(
        f"Waiting for a cluster on port {outer.sockets[0].getsockname()[1]};"
        f" its scheduler will be at tls://127.0.0.1:{inner.sockets[0].getsockname()[1]}.",
        flush=True,
    )
    await asyncio.gather(outer.serve_forever(), inner.serve_forever())


async def _pulse(writer: StreamWriter) -> None:
    """Tell a reserved connection again and again that this end lives, until it is used."""
    with suppress(OSError):
        while True:
            writer.write(_PULSE)
            await writer.drain()
            await asyncio.sleep(PULSE_SECONDS)


async def _join(context: ssl.SSLContext, host: str, port: int, tls: Path, workers: int, launch: list[str]) -> None:
    running = asyncio.current_task()
    if running is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    with tempfile.TemporaryDirectory(prefix="salmon-cluster-") as folder:
        noted = Path(folder, "scheduler.json")
        secured = ("--protocol", "tls", "--tls-ca-file", tls / "authority.pem", "--tls-cert", tls / "certificate.pem")
        files = (*(str(each) for each in secured), "--tls-key", str(tls / "key.pem"))
        dask = (sys.executable, "-m", "distributed.cli.dask_scheduler")
        scheduler = await asyncio.create_subprocess_exec(
            *dask, "--port", "0", "--no-dashboard", "--no-show", "--scheduler-file", str(noted), *files
        )
        started = [scheduler]
        try:
            address = await _read_address(noted, scheduler)
            worker = (sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard")
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            place = () if launch else ("--local-directory", folder)  # other nodes have folders of their own
            started += [
                await asyncio.create_subprocess_exec(*launch, *worker, *files, *place, env=environment)
                for _ in range(1 if launch else workers)
            ]
            inside = address.rpartition("://")[2].rpartition(":")
            calls = [_keep_calling(context, (host, port), (inside[0], int(inside[2]))) for _ in range(RESERVE)]
            print(f"The scheduler {address} is offered to {host}:{port}.", flush=True)
            ended = asyncio.create_task(scheduler.wait())
            await asyncio.wait([ended, asyncio.ensure_future(asyncio.gather(*calls))], return_when="FIRST_COMPLETED")
        finally:
            for process in reversed(started):
                with suppress(ProcessLookupError):
                    process.terminate()
            await asyncio.gather(*(process.wait() for process in started))
    raise StartError("The scheduler has ended.", hint="The lines above say why.")


async def _read_address(noted: Path, scheduler: asyncio.subprocess.Process) -> str:
    """Return the address that a scheduler writes into its file when it is ready."""
    while scheduler.returncode is None:
        with suppress(OSError, ValueError):
            return str(json.loads(await asyncio.to_thread(noted.read_text))["address"])
        await asyncio.sleep(0.1)
    raise StartError("The scheduler did not start.", hint="The lines above say why.")


async def _keep_calling(context: ssl.SSLContext, far: tuple[str, int], near: tuple[str, int]) -> None:
    """Keep one connection in reserve at the other end; when it is used, connect it
    with the scheduler and dial again.
    """
    used: set[asyncio.Task[None]] = set()
    while True:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                far_reader, far_writer = await asyncio.open_connection(*far, ssl=context)
            await _wait_to_begin(far_reader)
            near_reader, near_writer = await asyncio.open_connection(*near)
            far_writer.write(_BEGIN)
        except (OSError, TimeoutError):
            await asyncio.sleep(_AGAIN_SECONDS)
            continue
        passing = asyncio.create_task(_pass_both_ways(near_reader, near_writer, far_reader, far_writer))
        used.add(passing)
        passing.add_done_callback(used.discard)


async def _wait_to_begin(reader: StreamReader) -> None:
    """Wait until the other end uses a connection; OSError where it has closed it, TimeoutError where it is silent."""
    while (heard := await asyncio.wait_for(reader.read(1), SILENT_SECONDS)) == _PULSE:
        pass
    if heard != _BEGIN:
        raise ConnectionResetError


async def _pass_both_ways(
    one_reader: StreamReader, one_writer: StreamWriter, two_reader: StreamReader, two_writer: StreamWriter
) -> None:
    """Pass bytes between two connections until one of them ends; then both are closed."""
    ways = [asyncio.create_task(_pass(*way)) for way in ((one_reader, two_writer), (two_reader, one_writer))]
    await asyncio.wait(ways, return_when="FIRST_COMPLETED")
    for way in ways:
        way.cancel()
    for writer in (one_writer, two_writer):
        writer.close()


async def _pass(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()


def make_certificates() -> dict[str, str]:
    """Return the files of a new authority, whose key is forgotten, and of the one certificate that it signs."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = dt.datetime.now(dt.UTC)
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def sign(name: str, owner: ec.EllipticCurvePrivateKey, *, authority: bool) -> str:
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Salmon cluster authority")])
        builder = (
            x509.CertificateBuilder()
            .subject_name(issuer if authority else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(owner.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=365 * _YEARS))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(owner.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
        )
        made = builder.sign(authority_key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM).decode()

    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "authority.pem": sign("", authority_key, authority=True),
        "certificate.pem": sign("salmon cluster", key, authority=False),
        "key.pem": private.decode(),
    }

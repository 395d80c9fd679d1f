"""A stand-in for nvidia-cuda-mps-control: its daemon, its command line, its files and its logs.

Written after NVIDIA's manual page and the "Multi-Process Service" guide (appendix "Tools and
Interface Reference"). It is one file that needs nothing but Python, so that it can stand alone where
the real program would.

    nvidia-cuda-mps-control -d | -f [-multiuser-server]    the daemon, in the background or not
    nvidia-cuda-mps-control                                commands from standard input

The environment is the real one's: CUDA_MPS_PIPE_DIRECTORY, CUDA_MPS_LOG_DIRECTORY,
CUDA_VISIBLE_DEVICES. Servers are real processes that do nothing. There are no CUDA programs here;
these commands, which the real one does not have, play them:

    simulate_client PID UID [MIB] [PERCENT]   a program connects, with these limits in its environment;
                                              answers with the limits that it gets: "MIB PERCENT", or
                                              "waits" while a server of another user is in use
    simulate_exit PID                         it ends as it should
    simulate_kill PID                         it is killed without terminate_client before
    simulate_fault PID                        it makes a fatal GPU error, which all clients share

STAND_IN_MPS=old makes a daemon of an older driver: no -multiuser-server, get_server_status, ps or
terminate_client. STAND_IN_MPS=no-server: servers fail to start, as on a card that is in use.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

if {"-d", "-f"} & set(sys.argv):  # commands are frequent and need none of these
    import fcntl
    import select
    import signal
    import subprocess
    import time

PIPES = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))  # noqa: S108
LOGS = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))
CONTROL, PID_FILE = PIPES / "control", PIPES / "nvidia-cuda-mps-control.pid"
OLD = os.environ.get("STAND_IN_MPS") == "old"
NO_SERVER = os.environ.get("STAND_IN_MPS") == "no-server"
NO_LIMIT = 1 << 40
NOT_FOUND = (
    "Cannot find MPS control daemon process\n"
    "Ensure that the MPS control daemon is running and that CUDA_MPS_PIPE_DIRECTORY names its pipes"
)


class Server:
    """One server: its process, its user, what new clients get, and its clients."""

    def __init__(self, uid: int, mib: int, percent: float) -> None:
        name = (
            "import signal; open('/proc/self/comm', 'w').write('nvidia-cuda-mps'); signal.pause()"
        )
        self.process = subprocess.Popen([sys.executable, "-c", name], stdin=subprocess.DEVNULL)
        self.uid, self.mib, self.percent = uid, mib, percent
        self.clients: dict[int, tuple[int, float]] = {}
        self.status = "ACTIVE"

    @property
    def pid(self) -> int:
        return self.process.pid


class Daemon:
    def __init__(self, multiuser: bool) -> None:
        self.multiuser = multiuser
        self.mib, self.percent = NO_LIMIT, 100.0
        self.servers: list[Server] = []
        self.waiting: list[tuple[int, int, int, float]] = []
        self.ended = False

    def serve(self, told: int) -> None:
        with suppress(FileNotFoundError):
            CONTROL.unlink()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(CONTROL))
            CONTROL.chmod(0o666)
            listener.listen(16)
            PID_FILE.write_text(f"{os.getpid()}\n")
            self.log("control", "Start")
            os.close(told)  # the command that started us returns now
            signal.signal(signal.SIGTERM, lambda *_: self.quit())
            while not self.ended:
                if not select.select([listener], [], [], 0.2)[0]:
                    continue
                connection, _ = listener.accept()
                with connection:
                    while not self.ended and (data := connection.recv(65536)):
                        connection.send(("." + self.answer(data.decode())).encode())
        for file in (CONTROL, PID_FILE):
            file.unlink(missing_ok=True)

    def answer(self, line: str) -> str:
        words = line.split()
        self.reap()
        method = getattr(self, "do_" + words[0], None) if words else None
        lacking = {"get_server_status", "ps", "terminate_client"}
        if method is None or (OLD and words[0] in lacking):
            return f"Unrecognized command: {line.strip()}\n"
        self.log("control", f"User command: {line.strip()}")
        try:
            return str(method(*words[1:]))
        except (TypeError, ValueError, LookupError):
            return f"Invalid arguments: {line.strip()}\n"

    # --- the real one's commands

    def do_get_server_list(self) -> str:
        return "".join(f"{server.pid}\n" for server in self.servers)

    def do_get_server_status(self, pid: str) -> str:
        return self.server(pid).status + "\n"

    def do_start_server(self, flag: str, uid: str) -> str:
        if flag != "-uid":
            raise ValueError(flag)
        self.ready_for(0 if self.multiuser else int(uid))
        return ""

    def do_shutdown_server(self, pid: str, force: str = "") -> str:
        server = self.server(pid)
        if server.clients and force != "-f":
            return ""
        self.end(server)
        return ""

    def do_get_client_list(self, pid: str) -> str:
        return "".join(f"{client}\n" for client in self.server(pid).clients)

    def do_set_default_active_thread_percentage(self, percent: str) -> str:
        self.percent = _percent(percent)
        return f"{self.percent}\n"

    def do_get_default_active_thread_percentage(self) -> str:
        return f"{self.percent}\n"

    def do_set_active_thread_percentage(self, pid: str, percent: str) -> str:
        self.server(pid).percent = _percent(percent)
        return f"{_percent(percent)}\n"

    def do_get_active_thread_percentage(self, pid: str) -> str:
        return f"{self.server(pid).percent}\n"

    def do_set_default_device_pinned_mem_limit(self, device: str, size: str) -> str:
        self.mib = _size(device, size)
        return ""

    def do_get_default_device_pinned_mem_limit(self, device: str) -> str:
        return f"{self.mib}M\n"

    def do_set_device_pinned_mem_limit(self, pid: str, device: str, size: str) -> str:
        self.server(pid).mib = _size(device, size)
        return ""

    def do_get_device_pinned_mem_limit(self, pid: str, device: str) -> str:
        return f"{self.server(pid).mib}M\n"

    def do_terminate_client(self, pid: str, client: str) -> str:
        server = self.server(pid)
        if int(client) not in server.clients:
            return "CUDA_ERROR_INVALID_VALUE\n"
        self.log("server", f"Volta MPS: status of client {{{client}, 1}} is INACTIVE")
        del server.clients[int(client)]
        self.settle()
        return "CUDA_SUCCESS\n"

    def do_ps(self) -> str:
        head = "PID ID SERVER DEVICE NAMESPACE COMMAND\n"
        rows = [(c, s) for s in self.servers for c in s.clients]
        return head + "".join(f"{c} 1 {s.pid} GPU-0 {c} python3\n" for c, s in rows)

    def do_quit(self, *more: str) -> str:
        self.quit()
        return ""

    # --- the parts of programs

    def do_simulate_client(self, pid: str, uid: str, mib: str = "", percent: str = "") -> str:
        wanted = (int(mib or NO_LIMIT), float(percent or 100))
        user = 0 if self.multiuser else int(uid)
        self.log("control", f"NEW CLIENT {pid} from user {uid}: Server is not ready")
        server = self.ready_for(user)
        if server is None:
            self.waiting.append((int(pid), user, *wanted))
            return "waits\n"
        if server.status == "FAULT":
            return "CUDA_ERROR_MPS_SERVER_NOT_READY\n"
        return self.connect(server, int(pid), *wanted)

    def do_simulate_exit(self, pid: str) -> str:
        for server in self.servers:
            if server.clients.pop(int(pid), None) is not None:
                self.log("server", f"Client {{{pid}, 1}} exit")
        self.settle()
        return ""

    def do_simulate_kill(self, pid: str) -> str:
        for server in self.servers:
            if server.clients.pop(int(pid), None) is not None:
                server.status = "FAULT"  # "may leave the MPS server in an undefined state"
        return ""

    def do_simulate_fault(self, pid: str) -> str:
        server = next(s for s in self.servers if int(pid) in s.clients)
        self.log("server", "Volta MPS: Server is handling a fatal GPU error.")
        for client in server.clients:
            self.log("server", f"Volta MPS: status of client {{{client}, 1}} is INACTIVE")
        self.log("server", "Volta MPS: The following devices")
        self.log("server", "0")
        self.log("server", "Volta MPS: The following clients have a sticky error set:")
        for client in server.clients:
            self.log("server", str(client))
        server.clients.clear()
        return ""

    # --- inside

    def ready_for(self, uid: int) -> Server | None:
        """The server of this user; None while that of another one is in use."""
        for server in self.servers:
            if server.uid == uid:
                return server
            if server.clients:
                self.log("control", f"Server {server.pid} of another user is in use, waiting")
                return None
            self.end(server)
        self.log("control", f"Starting new server for user {uid}")
        if NO_SERVER:
            self.log("server", "MPS server failed to start")
            raise LookupError("all devices are busy")
        server = Server(uid, self.mib, self.percent)
        self.servers.append(server)
        self.log("control", f"NEW SERVER {server.pid}: Ready")
        return server

    def connect(self, server: Server, pid: int, mib: int, percent: float) -> str:
        got = (min(mib, server.mib), min(percent, server.percent))
        server.clients[pid] = got
        self.log("server", f"Volta MPS: status of client {{{pid}, 1}} is ACTIVE")
        return f"{got[0]} {got[1]:g}\n"

    def settle(self) -> None:
        """Those that wait for another user's server go on when that is free."""
        waiting, self.waiting = self.waiting, []
        for pid, uid, mib, percent in waiting:
            server = self.ready_for(uid)
            if server is None:
                self.waiting.append((pid, uid, mib, percent))
            else:
                self.connect(server, pid, mib, percent)

    def server(self, pid: str) -> Server:
        return next(s for s in self.servers if s.pid == int(pid))

    def end(self, server: Server) -> None:
        server.process.kill()
        server.process.wait()
        self.servers.remove(server)
        self.log("control", f"Server {server.pid} exited with status 0")

    def reap(self) -> None:
        for server in list(self.servers):
            if server.process.poll() is not None:
                self.servers.remove(server)
                self.log("control", f"Server {server.pid} exited with status 1")

    def quit(self) -> None:
        for server in list(self.servers):
            self.end(server)
        self.log("control", "Exit")
        self.ended = True

    def log(self, name: str, text: str) -> None:
        now = time.time()
        stamp = (
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03}"
        )
        with (LOGS / f"{name}.log").open("a") as file:
            file.write(f"[{stamp} {name.capitalize()} {os.getpid()}] {text}\n")


def _percent(text: str) -> float:
    value = float(text)
    if not 0 < value <= 100:
        raise ValueError(text)
    return value


def _size(device: str, text: str) -> int:
    if device != "0" or text[-1] not in "MG":
        raise ValueError(text)
    return int(text[:-1]) * (1024 if text[-1] == "G" else 1)


def run_daemon(arguments: list[str]) -> int:
    if OLD and "-multiuser-server" in arguments:
        print("Invalid option: -multiuser-server")
        return 1
    if not PIPES.is_dir() or not LOGS.is_dir():
        print(f"Cannot use {PIPES} and {LOGS}: no such directory")
        return 1
    with (PIPES / "control_lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("An instance of this daemon is already running")
            return 1
        ready, told = os.pipe()
        if "-d" in arguments:
            if os.fork():
                os.close(told)
                os.read(ready, 1)  # as daemon(3) leaves it: ready when the command returns
                return 0
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
        Path("/proc/self/comm").write_text("nvidia-cuda-mps")
        os.set_inheritable(lock.fileno(), False)
        Daemon("-multiuser-server" in arguments).serve(told)
    return 0


def run_client() -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(str(CONTROL))
        except OSError:
            print(NOT_FOUND)
            return 1
        for line in sys.stdin:
            if not line.strip():
                continue
            connection.send(line.encode())
            answer = connection.recv(65536).decode()
            if not answer:
                return 1
            sys.stdout.write(answer[1:])
            sys.stdout.flush()
            if line.split()[0] == "quit":
                return 0
    return 0


if __name__ == "__main__":
    options = sys.argv[1:]
    sys.exit(run_daemon(options) if {"-d", "-f"} & set(options) else run_client())

"""python -I -S warm_client.py SOCKET ARGS...: runs the Python command ARGS as tests/warm.py does, for shells.

Standard streams, environment and folder are those of this process; signals are handed on, and so is the way it ends.
"""

import array
import os
import pickle
import signal
import socket
import struct
import sys


def main(address: str, args: list[str]) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.connect("\0" + address)
    data = pickle.dumps({"args": args, "env": dict(os.environ), "cwd": os.getcwd()})
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
    server.sendmsg([struct.pack("q", len(data))], rights)
    server.sendall(data)
    pid = int(server.recv(20))
    if pid == 0:
        os.execv(args[0], args)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: os.kill(pid, number))
    code = int(server.recv(20))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


main(sys.argv[1], sys.argv[2:])

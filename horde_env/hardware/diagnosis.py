"""What went wrong with a port, in sentences: why it cannot be opened, how it was lost.

An operating system reports one mishap in many ways (termios.error is no OSError, pyserial may keep the number in its
text alone); here each of them becomes the same sentence.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from horde_env.hardware.settings import PortConfig

ON_A_NETWORK = ("socket://", "rfc2217://")
SERIAL_GROUPS = ("dialout", "uucp", "plugdev")  # who may use serial ports and nothing else


NO_ROOM = "it accepts no bytes: nothing reads them at its other end, or flow control holds them back"


def explain_address(url: str) -> str:
    """Say what is wrong with an address on the network; "" where nothing is, or where it is none."""
    if not url.startswith(ON_A_NETWORK):
        return ""
    kind, place = url.split("://", 1)
    example = f"write {kind}://HOST:PORT"
    host, colon, port = place.partition("?")[0].partition("/")[0].rpartition(":")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return f"{url} is no address: {example}, with brackets about an address that has colons, as in [::1]:2330."
    if not colon or not port:
        return f"{url} names no port: {example}."
    if not host:
        return f"{url} names no host: {example}."
    if not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65_535:
        return f"{url} cannot be opened: a port is a number from 1 to 65535, not {port}."
    return ""


def explain_refusal(error: Exception, config: PortConfig, devices: Callable[[], list[str]]) -> str:
    """Say why a port could not be opened; `devices` lists the serial ports that there are."""
    url, number = config.url, _number(error)
    if number == errno.ENOENT and ":" in url and "/" not in url:
        return f"{url} is no device: write socket://{url} for a serial line over TCP; a driver needs the drops backend."
    if number == errno.ENOENT:
        return f"there is no port {url}. This machine has {', '.join(devices()) or 'no serial port at all'}."
    if number in (errno.EACCES, errno.EPERM):
        return _explain_permission(url)
    if number in (errno.EAGAIN, errno.EBUSY):
        return f"{url} is in use by another program. Close that one first: a robot takes commands from one driver."
    if number == errno.EINVAL and config.parity != "none":
        return (
            f"{url} refuses {config.parity} parity, as pseudo terminals do. Use parity none there: `horde-robot check "
            f"--parity none --save` keeps it for all commands."
        )
    if number in (errno.ENOTTY, errno.EISDIR) or "Inappropriate ioctl" in str(error):
        return f"{url} is not a serial port."
    return f"{url} cannot be opened: {error}."


def _number(error: Exception) -> int | None:
    """Return an error's errno; termios.error keeps it in its arguments alone."""
    number = getattr(error, "errno", None)
    if number is None and error.args and isinstance(error.args[0], int):
        number = error.args[0]
    return number


def _explain_permission(url: str) -> str:
    """Say how to be let in; a folder that may not be entered does not even tell the group.

    To join a group is advised where it is one for serial ports, and may use this one: any other may do much more.
    """
    try:
        device = os.stat(url)
    except OSError:
        return f"no permission to use {url}."
    group = _name_of(device.st_gid)
    is_for_ports, may = group in SERIAL_GROUPS, stat.S_IRGRP | stat.S_IWGRP
    if is_for_ports and device.st_mode & may == may:
        return (
            f"no permission to use {url}: it belongs to the group {group}. Join it with "
            f"`sudo usermod -aG {group} $USER` and log in again."
        )
    flaw = "may not read and write it" if is_for_ports else "is none for serial ports"
    return (
        f"no permission to use {url}: it belongs to the group {group}, which {flaw}. Is it the robot's port? If so, "
        f"let who looks after this machine give it to the group dialout, with mode 0660 (a udev rule)."
    )


def _name_of(group: int) -> str:
    """Return the name of a group, or its number where it has none."""
    try:
        from grp import getgrgid

        return getgrgid(group).gr_name
    except (ImportError, KeyError):
        return str(group)


def explain_loss(error: Exception) -> str:
    """Say how an open port was lost."""
    if _number(error) == errno.EIO or "returned no data" in str(error) or "Errno 5]" in str(error):
        return "the device went away (unplugged, or switched off?)"
    if _number(error) == errno.EAGAIN:
        return NO_ROOM
    hung_up = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)
    if "socket disconnected" in str(error) or any(
        _number(error) == number or f"Errno {number}]" in str(error) for number in hung_up
    ):
        return "the other side closed the connection"
    return f"{type(error).__name__}: {error}"

"""What went wrong with a port, in sentences: why it cannot be opened, how it was lost, who talks in the robot's place.

An operating system reports one mishap in many ways (termios.error is no OSError, pyserial may keep the number in its
text alone); here each of them becomes the same sentence.
"""

from __future__ import annotations

import errno
import os
import string
from collections.abc import Callable
from urllib.parse import urlsplit

from horde_env.hardware import drops, wire
from horde_env.hardware.readings import Counts
from horde_env.hardware.settings import PortConfig


def names_no_port(url: str) -> bool:
    """Tell whether an address on the network lacks its port."""
    try:
        return url.startswith(("socket://", "rfc2217://")) and urlsplit(url).port is None
    except ValueError:
        return True


def explain_refusal(error: Exception, config: PortConfig, devices: Callable[[], list[str]]) -> str:
    """Say why a port could not be opened; `devices` lists the serial ports that there are."""
    url, number = config.url, _number(error)
    if number == errno.ENOENT:
        return f"there is no port {url}. This machine has {', '.join(devices()) or 'no serial port at all'}."
    if number in (errno.EACCES, errno.EPERM):
        return _explain_permission(url)
    if number in (errno.EAGAIN, errno.EBUSY):
        return f"{url} is in use by another program. Close that one first: a robot takes commands from one driver."
    if number == errno.EINVAL and config.parity != "none":
        return f"{url} refuses {config.parity} parity, as pseudo terminals do. Use parity none there."
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
    """Say how to be let in; a folder that may not be entered does not even tell the group."""
    try:
        group = _group_of(url)
    except OSError:
        return f"no permission to use {url}."
    return (
        f"no permission to use {url}: it belongs to the group {group}. Join it with "
        f"`sudo usermod -aG {group} $USER` and log in again."
    )


def _group_of(path: str) -> str:
    """Return the name of the group that a device belongs to, or its number."""
    group = os.stat(path).st_gid
    try:
        from grp import getgrgid

        return getgrgid(group).gr_name
    except (ImportError, KeyError):
        return str(group)


def explain_loss(error: Exception) -> str:
    """Say how an open port was lost."""
    if _number(error) == errno.EIO or "returned no data" in str(error) or "Errno 5]" in str(error):
        return "the device went away (unplugged, or switched off?)"
    hung_up = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)
    if "socket disconnected" in str(error) or any(
        _number(error) == number or f"Errno {number}]" in str(error) for number in hung_up
    ):
        return "the other side closed the connection"
    return f"{type(error).__name__}: {error}"


def explain_parting(url: str, reason: str) -> str:
    """Say that a port went away before the robot had answered, as a server does that serves one client at a time."""
    rival = " Does another program drive the robot already?" if url.startswith("socket://") else ""
    return f"{url} went away before the robot answered: {reason}.{rival}"


def explain_silence(config: PortConfig, heard: bytes, counts: Counts, woken: bool) -> str:
    """Say what came instead of a robot's packets; `woken` where they were asked for (a serial line, not drops)."""
    url, asked = config.url, ", not even after `mi on`" if woken else ""
    opened = f" It was opened as {config.line}; the robot speaks 115200 8O1."
    if url.startswith("socket://"):  # has neither baud rate nor parity
        opened = ""
    if not heard:
        return f"nothing comes from {url}{asked}. Is the robot switched on, and is this its port?"
    if woken and drops.STATE_NAME in heard:
        return f"{url} sends drops, not the bytes of the serial line: use the drops backend there."
    if not woken and wire.HEADER in heard:
        return f"{url} sends the bytes of the serial line, not drops: use the serial backend there."
    if counts.crc_errors:
        return (
            f"packets come from {url}, but the checksum of each was wrong ({counts.crc_errors} of them). Is the line "
            f"noisy, or shared with another program?{opened}"
        )
    text = heard[:60].decode("ascii", errors="replace")
    if "critterprompt" in heard.decode("ascii", errors="replace"):
        return f"the robot's console answers at {url}, but sends no packets{asked}: reset the robot. It said {text!r}."
    if all(character in string.printable for character in text):
        return f"{url} is not the robot: it says {text!r}."
    cause = "Wrong baud rate or parity, or not the robot?" if opened else "Is it the robot's port?"
    return f"{counts.n_bytes} bytes came from {url} but no packet, the first {heard[:8].hex(' ')}. {cause}{opened}"

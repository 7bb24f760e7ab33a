"""One SGLang server: started, proved to be the right one, measured by others, stopped. All of its processes live here."""

from perfgate.server.lifecycle import Server, ServerError, attach, start, stop, stop_entry

__all__ = ["Server", "ServerError", "attach", "start", "stop", "stop_entry"]

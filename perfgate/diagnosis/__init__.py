"""Names the cause of a failed or missing measurement from the server's log, an exit code and the client's output."""

from perfgate.diagnosis.attempts import across_starts
from perfgate.diagnosis.cause import Cause, Diagnosis
from perfgate.diagnosis.decide import diagnose
from perfgate.diagnosis.hang import keep_server_for_s

__all__ = ["Cause", "Diagnosis", "across_starts", "diagnose", "keep_server_for_s"]

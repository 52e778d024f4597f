"""Messages that ranks send to each other: which of them do not meet, from what was called."""

from __future__ import annotations

from typing import Any

from syrupy.assertion import SnapshotAssertion

from inductoscope.preflight.rank_files import MISMATCH, Prediction, message_faults, read_messages


def call(way: str, peer: int, count: int = 8, **more: Any) -> dict[str, Any]:
    text = f"float32 x {count}"
    common = {"group": "0", "text": text, "size": 4 * count, "where": "job.py:7"}
    return {**common, "way": way, "peer": peer, "blocks": True, **more}


def faults(
    ranks: list[list[dict[str, Any]]], *, backend: str = "gloo", ended: list[int] | None = None
) -> tuple[list[Prediction], list[str]]:
    messages = {rank: read_messages(rank, lines, backend) for rank, lines in enumerate(ranks)}
    return message_faults(messages, range(len(ranks)) if ended is None else ended, backend)


def test_what_is_sent_and_received_in_turn_is_fine() -> None:
    assert faults([[call("send", 1), call("recv", 1)], [call("recv", 0), call("send", 0)]]) == (
        [],
        [],
    )


def test_a_ring_of_blocking_sends_waits_for_itself() -> None:
    ring = [[call("send", (rank + 1) % 3), call("recv", (rank - 1) % 3)] for rank in range(3)]
    ((fault,), _) = faults(ring)
    assert [side.text for side in fault.sides] == ["send float32 x 8 (job.py:7)"] * 3
    # One of them that does not block is enough.
    ring[1][0]["blocks"] = False
    assert faults(ring) == ([], [])


def test_a_message_that_nobody_sends(snapshot: SnapshotAssertion) -> None:
    ((fault,), _) = faults([[], [call("recv", 0)]])
    assert fault.decision == snapshot
    assert [side.text for side in fault.sides] == [
        "recv float32 x 8 (job.py:7)",
        "does not send it",
    ]


def test_ranks_that_did_not_run_or_failed_are_not_accused() -> None:
    assert faults([[call("send", 5), call("recv", 5)]]) == ([], [])
    assert faults([[call("send", 1)], []], ended=[0]) == ([], [])


def test_gloo_leaves_room_empty_and_nccl_does_not() -> None:
    ranks = [[call("send", 1, 8)], [call("recv", 0, 16)]]
    (found, notes) = faults(ranks)
    assert (found, len(notes)) == ([], 1)
    ((fault,), _) = faults(ranks, backend="nccl")
    assert fault.kind == MISMATCH


def test_gloo_looks_at_tags_and_nccl_does_not() -> None:
    ranks = [[call("send", 1, tag=1)], [call("recv", 0, tag=2)]]
    assert len(faults(ranks)[0]) == 2
    assert faults(ranks, backend="nccl") == ([], [])


def test_a_message_from_anybody_is_matched_with_nobody() -> None:
    (found, notes) = faults([[call("send", 1)], [call("recv", -1)]])
    assert (found, len(notes)) == ([], 1)

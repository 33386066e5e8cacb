"""What a log keeps in memory is nothing that Python's collector stops everything to walk."""

import gc

from headway.streams.limits import StreamLimits
from headway.streams.record import Entry, StreamRecord
from headway.streams.table import StreamTable


def test_pythons_collector_passes_by_the_events_of_streams_that_are_over() -> None:
    table = StreamTable(StreamLimits(), lambda: 0)
    stream = table.add(StreamRecord(stream_id="a" * 32, owner="tok", created_ms=0))
    lease = table.take(stream)
    table.append(lease, [Entry("content", b"1"), Entry("control", b"{}", "message_stop")], None)
    table.append(lease, [Entry("control", b"[DONE]")], "ended")
    gc.collect()
    assert len(stream.events) == 3
    assert not any(map(gc.is_tracked, (stream.events, *stream.events)))
    assert table.ack("a" * 32, 1, 1)
    gc.collect()
    assert len(stream.events) == 2
    assert not gc.is_tracked(stream.events)

"""What is told of a request as soon as it is over is what its record says."""

import pickle

import pytest
from hypothesis import given

from headway.lab.exchange import Exchange
from headway.lab.latency import intervals
from headway.lab.sample import Sample
from headway.lab.tokens import token_counts
from support.random_records import records


@given(records(most_tokens=50))
def test_a_sample_says_what_the_record_says(exchange: Exchange) -> None:
    sample = Sample.of(exchange)
    between = intervals(exchange)
    assert sample.ok == exchange.ok
    assert sample.output_tokens == token_counts(exchange).total
    assert sample.num_intervals == sum(run.num_tokens for run in between.runs)
    assert sample.itl_ns == (None if between.mean_ns is None else pytest.approx(between.mean_ns))
    assert pickle.loads(pickle.dumps(sample)) == sample

"""The policies by name."""

from headway.core.config import PolicyName
from headway.engine.policies.bucketed import bucketed
from headway.engine.policies.fcfs import fcfs
from headway.engine.policies.pauses import pauses
from headway.engine.policies.policy import Policy, by_arrival, by_class
from headway.engine.policies.shortest import shortest
from headway.engine.policies.slo import slo, within_share

POLICIES: dict[PolicyName, Policy] = {
    "fcfs": Policy(fcfs, by_arrival),
    "shortest": Policy(shortest, by_arrival),
    "bucketed": Policy(bucketed, by_arrival),
    "slo": Policy(slo, by_class, displaces=within_share, pauses=pauses),
}

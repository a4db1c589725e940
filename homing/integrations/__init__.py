"""Programs that use a library of AMQP tell Homing why a delivery failed, without a change (docs/interoperability.md).

``homing instrument COMMAND…`` or ``import homing.integrations.auto`` does it for whichever library the program imports; ``report`` of the
module of its library is for programs that say more by hand. Runs in any program's environment: standard library alone, Python 3.9 and
newer, and nothing else of ours. Beside a broker that is not Homing nothing is sent.
"""
